"""A model in a `vllm serve` of another environment, which the worker starts and ends: the server's process, and the
engine that talks to it.

The app names the server's program in the environment variable `SERVER_VARIABLE`. The process ends with the worker, even
if the worker is killed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from typing import Any, get_args

import msgspec

from vlmtui.domain.conversation import Modality
from vlmtui.domain.engine import EngineInfo, LoadSpec, LoadStage
from vlmtui.domain.generation import EngineEvent, Request
from vlmtui.domain.metrics import EngineMetrics
from vlmtui.engines.serve import SERVER_VARIABLE, ServerProgram, cpu_arguments, private_server_flags
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.files import write_private
from vlmtui.inspection.placeholders import placeholder_texts
from vlmtui.paths import Paths, bundled_model
from vlmtui.processes import bound_command, python_command, safe_environment, search_path
from vlmtui.reading import read_json
from vlmtui.registry.loader import Registry
from vlmtui.worker.backends.contract import CPU_NICENESS, Backend, HostedEngine, LoadStep, ProcessEnded, Report
from vlmtui.worker.backends.remote.engine import RemoteEngine, connect_to_server
from vlmtui.worker.backends.vllm import failures
from vlmtui.worker.backends.vllm.engine_args import (
    CPU_ENVIRONMENT,
    EAGER_CPU_ENVIRONMENT,
    environment,
    own_context,
    own_context_note,
)
from vlmtui.worker.health import describe_exit
from vlmtui.worker.hf.remote_code import pin_remote_code

_BYTES_MAX = 1_000_000
_CONFIG, _TOKENIZER = "config.json", "tokenizer_config.json"


def write_legacy_copy(folder: Path, target: Path) -> Path:
    """Write a copy of the bundled model for an older Transformers: two JSON files are rewritten, all others are links.

    Return `target`. Raises VlmtuiError.
    """
    target.mkdir(exist_ok=True)
    for file in folder.iterdir():
        if file.name not in (_CONFIG, _TOKENIZER) and not (target / file.name).exists():
            (target / file.name).symlink_to(file)
    for name, rewritten in ((_CONFIG, _legacy_config), (_TOKENIZER, _legacy_tokenizer)):
        config = read_json(folder / name, bytes_max=_BYTES_MAX)
        assert isinstance(config, dict)
        write_private(target / name, json.dumps(rewritten(config), indent=2).encode())
    return target


def _legacy_config(config: dict[str, Any]) -> dict[str, Any]:
    """Return `config.json` as older versions of Transformers expect it: the fields of `text_config` at the top, and
    `rope_parameters` as `rope_theta` and `rope_scaling`."""
    text = dict(config.pop("text_config"))
    rope = text.pop("rope_parameters")
    vision = {name: value for name, value in config["vision_config"].items() if name not in _NEW}
    text = {name: value for name, value in text.items() if name not in _NEW}
    scaling = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    return {**text, **config, "vision_config": vision, "rope_theta": rope["rope_theta"], "rope_scaling": scaling}


_NEW = ("model_type", "layer_types", "rope_parameters")


def _legacy_tokenizer(config: dict[str, Any]) -> dict[str, Any]:
    config.pop("backend")
    special = config.pop("extra_special_tokens")
    return {**config, "additional_special_tokens": special, "tokenizer_class": "Qwen2TokenizerFast"}


_log = logging.getLogger(__name__)

SOCKET = "s"
"""The name of the server's socket in the worker's folder. It is short because the whole path is limited to about 100
bytes."""
_METADATA = "metadata"
_ARGUMENT_FILES = ("entrypoints/**/cli_args.py", "engine/arg_utils.py")
"""The files in which vLLM declares its server's options. `cli_args.py` is in another folder in some versions."""
_FOLDER_CODE = "import importlib.util as u; print((u.find_spec('vllm') or u).submodule_search_locations[0])"
_NAME_CODE = "import importlib.metadata as m; m.version('vllm')"
_END_GRACE_S = 1.5


class ServerProcess:
    """A running server. `url`: where it listens."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self._process = process
        self.url = url

    async def ended(self) -> ProcessEnded:
        """Wait until the process ends, and return an error that says how it ended."""
        return ProcessEnded(f"Its process {describe_exit(await self._process.wait())}.")

    async def end(self) -> None:
        """Terminate the process. If it survives, the guardian (`vlmtui.worker.guardian`) kills it."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), _END_GRACE_S)


def given_program() -> ServerProgram:
    """Return the server program from the environment variable `SERVER_VARIABLE`. Raises VlmtuiError(NO_ENGINE)."""
    try:
        return msgspec.json.decode(os.environ.get(SERVER_VARIABLE, ""), type=ServerProgram)
    except msgspec.DecodeError as error:
        message = "No server was named to the worker."
        raise VlmtuiError(ErrorKind.NO_ENGINE, message, hint="`vlmtui engines` lists the engines.") from error


async def start_server(program: ServerProgram, spec: LoadSpec, home: Path) -> ServerProcess:
    """Start the server of a model. Its socket is in `home`, the worker's private folder.

    Raises VlmtuiError(NO_ENGINE) if the environment has no vLLM.
    """
    given = _environment(program, spec, home)
    declared = await _declared_options(program, given)
    flags = private_server_flags(spec, for_cpu=program.is_for_cpu)
    known = [flag for flag in flags if _is_known(flag.words[0], declared, spec)]
    for flag in set(flags) - set(known):
        _log.info("vLLM %s has no %s: %s", program.version, flag.words[0], flag.reason)
    words = [word for flag in known for word in flag.words]
    path = home / SOCKET
    path.unlink(missing_ok=True)  # vLLM does not start if an earlier server has left its socket
    quiet = ["--disable-uvicorn-access-log"] if "disable_uvicorn_access_log" in declared else []
    model = spec.model
    if program.has_older_transformers and Path(model) == bundled_model():
        model = str(write_legacy_copy(bundled_model(), home / "model"))
    arguments = ["-m", "vllm.entrypoints.cli.main", "serve", model, *words, "--uds", str(path), *quiet]
    command = python_command(program.interpreter, *arguments)
    process = await asyncio.create_subprocess_exec(
        *bound_command(command), env=given, cwd=home, stdin=asyncio.subprocess.DEVNULL
    )
    return ServerProcess(process, f"unix:{path}")


def _environment(program: ServerProgram, spec: LoadSpec, home: Path) -> dict[str, str]:
    """Return the server's environment variables. PYTHONPATH includes the folder `site`, so that its `sitecustomize`
    also runs in the server's processes."""
    site = Path(__file__).parents[2] / "site"
    kept = [folder for folder in search_path(os.environ) if folder != str(site)]
    search = [str(site), str(home / _METADATA), *program.search_path, *kept]
    cpu = {**CPU_ENVIRONMENT, **EAGER_CPU_ENVIRONMENT} if program.is_for_cpu else {}
    ours = safe_environment(os.environ)
    given = {name: value for name, value in ours.items() if name not in (SERVER_VARIABLE, "PYTHONHOME")}
    # By default vLLM's server forks its engine core. `sitecustomize` runs only in a spawned process.
    spawn = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    return {**environment(spec.engine_args), **cpu, **given, **spawn, "PYTHONPATH": os.pathsep.join(search)}


async def _declared_options(program: ServerProgram, given: dict[str, str]) -> frozenset[str]:
    """Return all words in the files in which this vLLM declares its server's options.

    If the environment lacks vLLM's package metadata, as builds for CPUs do, also writes them: without them the server
    does not start. Raises VlmtuiError(NO_ENGINE) if the environment has no vLLM.
    """
    found = (await _answer(program, _FOLDER_CODE, given)).strip()
    if not found:
        raise VlmtuiError(
            ErrorKind.NO_ENGINE,
            f"The environment of {program.interpreter} has no vLLM.",
            hint="`vlmtui engines` lists the engines; remove this one and install it again.",
        )
    if not await _answer(program, f"{_NAME_CODE}; print(1)", given):
        _write_metadata(program, Path(given["PYTHONPATH"].split(os.pathsep)[1]))
    files = [path for pattern in _ARGUMENT_FILES for path in Path(found).glob(pattern)]
    words = re.findall(r"[\w-]+", "\n".join(path.read_text("utf-8", "replace") for path in files))
    return frozenset(word.strip("-").replace("-", "_") for word in words)


async def _answer(program: ServerProgram, code: str, given: dict[str, str]) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *bound_command(python_command(program.interpreter, "-c", code)), env=given, cwd=os.sep,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        return ""
    said, _ = await process.communicate()
    return said.decode("utf-8", "replace") if process.returncode == 0 else ""


def _write_metadata(program: ServerProgram, folder: Path) -> None:
    """Write package metadata for `vllm`. If the version contains `cpu`, vLLM concludes that it runs on a CPU."""
    version = f"{program.version}+cpu" if program.is_for_cpu else program.version
    target = folder / f"vllm-{version}.dist-info"
    target.mkdir(parents=True, exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
    write_private(target / "METADATA", text.encode())


def _is_known(flag: str, declared: frozenset[str], spec: LoadSpec) -> bool:
    """Return True if this vLLM has the flag. Also True if the user set the flag: vLLM then reports an unknown one
    itself."""
    name = flag.removeprefix("--").replace("-", "_")
    return bool({name, name.removeprefix("no_")} & {*declared, *spec.engine_args})


_ANY_TIME_S = 1e9
"""The time limit for connecting. It never passes: the wait ends with the server's process."""
_END_S = 10.0
"""The most seconds that a server takes to end after its engine has died."""


async def serve_and_connect(spec: LoadSpec, report: Report) -> ServedEngine:
    """Start the app's server program with the spec's model, and connect to it once it listens.

    Raises VlmtuiError, or ProcessEnded if the server's process ends before."""
    program = given_program()
    report(LoadStep(LoadStage.CONFIG, f"starting the server of vLLM {program.version}"))
    if program.is_for_cpu:
        os.nice(CPU_NICENESS)
    spec = pin_remote_code(spec)
    async with AsyncExitStack() as stack:
        process = await start_server(program, spec, Path.cwd())
        stack.push_async_callback(process.end)
        connecting = asyncio.create_task(connect_to_server(_reached(spec, process), lambda step: None))
        ended = asyncio.create_task(process.ended())
        await asyncio.wait({connecting, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not connecting.done():
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
            raise ended.result()
        engine = ServedEngine(await connecting, process, ended, program, spec)
        stack.pop_all()
    return engine


def _reached(spec: LoadSpec, process: ServerProcess) -> LoadSpec:
    """Return the LoadSpec with which the `remote` backend connects to this server."""
    arguments: dict[str, object] = {"url": process.url, "model": spec.name, "wait_s": _ANY_TIME_S}
    registry = Registry.with_users(Paths.default().families)
    if spec.family is not None and spec.family in registry:
        family = registry[spec.family]
        arguments["placeholders"] = placeholder_texts(family)
        if family.thinking is not None:
            arguments["thinking"] = msgspec.to_builtins(family.thinking.tags)
    return msgspec.structs.replace(spec, engine_args=arguments)


class ServedEngine:
    """An engine in a server's process; it is dead when that process has ended."""

    def __init__(
        self,
        remote: RemoteEngine,
        process: ServerProcess,
        ended: asyncio.Task[ProcessEnded],
        program: ServerProgram,
        spec: LoadSpec,
    ) -> None:
        self._remote = remote
        self._process = process
        self._ended = ended
        self.info = msgspec.structs.replace(_info(remote.info, program, spec), address=process.url)

    async def died(self) -> None:
        await asyncio.shield(self._ended)

    async def shutdown(self) -> None:
        await self._remote.shutdown()
        await self._process.end()

    async def metrics(self) -> EngineMetrics:
        return await self._remote.metrics()

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        try:
            async with aclosing(self._remote.generate(request)) as events:
                async for event in events:
                    yield event
        except VlmtuiError as error:
            if error.kind is not ErrorKind.NO_NETWORK:
                raise
            # The server's engine may have died. Its process then ends within seconds.
            done, _ = await asyncio.wait({self._ended}, timeout=_END_S)
            if not done:
                raise
            raise self._ended.result() from error


def _info(found: EngineInfo, program: ServerProgram, spec: LoadSpec) -> EngineInfo:
    """Return the facts that the server reports about the engine, completed from its start arguments."""
    arguments = cpu_arguments(spec.engine_args) if program.is_for_cpu else dict(spec.engine_args)
    dtype = arguments.get("dtype")
    return msgspec.structs.replace(
        found,
        spec=spec,
        engine="vLLM",
        engine_version=found.engine_version or program.version,
        device="cpu" if program.is_for_cpu else "GPU",
        dtype=dtype if isinstance(dtype, str) else "",
        limits=_limits(arguments.get("limit_mm_per_prompt")),
        engine_args=arguments,
        revision=spec.revision,
    )


def _limits(given: object) -> dict[Modality, int]:
    if not isinstance(given, Mapping):
        return {}
    modalities: tuple[Modality, ...] = get_args(Modality)
    return {one: count for one in modalities if isinstance(count := given.get(one), int) and count}


async def load_with_own_context(
    spec: LoadSpec, report: Report, error: ProcessEnded, log: Sequence[str]
) -> HostedEngine:
    """Start the server again with the model's own context length, if `log` says that the server rejected a larger
    `max_model_len`. Otherwise raise `error`. Raises as `serve_and_connect` does."""
    own = own_context("\n".join(log))
    wished = spec.engine_args.get("max_model_len")
    if own is None or not isinstance(wished, int) or own >= wished:
        raise error
    note = own_context_note(own, wished)
    report(LoadStep(LoadStage.CONFIG, note))
    smaller = msgspec.structs.replace(spec, engine_args={**spec.engine_args, "max_model_len": own})
    engine = await serve_and_connect(smaller, report)
    engine.info = msgspec.structs.replace(engine.info, spec=spec, notes=(note,))
    return engine


def explain_load(error: BaseException, log: Sequence[str], *, name: str) -> VlmtuiError:
    """Explain a failed load. If the server's process ended, the log has the cause."""
    if isinstance(error, ProcessEnded):
        return failures.explain_server_exit(log, name=name, said=str(error))
    return failures.explain_load(error, log, name=name)


def explain_request(error: BaseException, log: Sequence[str] = ()) -> VlmtuiError:
    """Explain a failed request. If the server's process ended, the log has the cause."""
    if isinstance(error, ProcessEnded):
        return failures.explain_death(log, fallback=str(error))
    return failures.explain_request(error, log)


BACKEND = Backend(
    title="vLLM's server",
    load=serve_and_connect,
    load_again=load_with_own_context,
    read_progress=failures.read_progress,
    explain_load=explain_load,
    explain_request=explain_request,
    explain_death=failures.explain_death,
)
