"""`vlmtui doctor`: checks this machine, and asks the bundled model a question. With `--report`: prints facts about this
machine that are safe to publish.

Each field of the report is a number, a flag, or a text from a list or pattern of public texts, for example a version;
any other text becomes "other". So no path, user, host, key, address, prompt or error message can get in.
"""

from __future__ import annotations

import argparse
import builtins
import getpass
import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import psutil

import vlmtui
from vlmtui.bootstrap import build, key_warnings
from vlmtui.cli.engine import AskSetup, ready_engine, run_interruptible
from vlmtui.cli.output import note, print_json
from vlmtui.config.settings import Settings, config_file, load_settings, setting_names, sources
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import TRANSFORMERS_BACKEND, BackendChoice
from vlmtui.engine.machine import GIB, Machine, gib
from vlmtui.engines.builds import VARIANTS, Hardware, find_hardware
from vlmtui.engines.installed import Engines, choose_engine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.media.images import stage_image
from vlmtui.paths import Paths, bundled, file_system_of, private_dir
from vlmtui.processes import ask_program, find_program
from vlmtui.reading import read_tail
from vlmtui.registry.hub_cache import hub_cache_folder
from vlmtui.registry.match import DEFAULT_MODEL, resolve
from vlmtui.session.check.questions import Question, QuestionOutcome, ask_question
from vlmtui.store.database import HELD
from vlmtui.store.holder import is_on_network, other_holder
from vlmtui.store.opening import FILE
from vlmtui.terminal import PictureWay, Terminal, TerminalQuestion, best_way, has_true_colour, multiplexer_of
from vlmtui.text import visible
from vlmtui.worker.backends import has_transformers

CANNOT = 2
"""Exit code: can't ask the model of `--model`."""
_SAMPLE = "two-shapes.png"
_EXPECTED = (("yellow",), ("star",), ("top",), ("left",), ("blue",), ("square",), ("right",))
_MEMORY_WANTED = 4 * GIB
_DISK_WANTED = {"data": 1 * GIB, "hub cache": 20 * GIB}
_WAY_TITLES = {
    "kitty": "kitty's protocol",
    "iterm": "iTerm2's protocol",
    "sixel": "Sixel",
    "sextant": "sextants, 6 pixels a cell",
    "quadrant": "quadrants, 4 pixels a cell",
    "halfcell": "half cells, 2 pixels a cell",
}
OTHER = "other"
_VERSION = re.compile(r"\d{1,4}(?:\.\d{1,6}){0,4}(?:(?:a|b|rc|\.post|\.dev)\d{1,6}){0,3}")
_LOCAL_VERSION = re.compile(r"cpu|cu\d{2,3}|rocm\d[\d.]{0,8}")
_PACKAGES = (
    "textual", "textual-image", "pillow", "pillow-heif", "av", "numpy", "msgspec", "httpx2", "torch", "transformers",
)  # fmt: skip
_TERMS = (
    "xterm", "xterm-256color", "xterm-kitty", "xterm-ghostty", "tmux", "tmux-256color", "screen", "screen-256color",
    "foot", "alacritty", "wezterm", "mlterm", "contour", "linux", "vt100", "vt220", "rxvt-unicode-256color",
    "st-256color", "konsole-256color", "dumb",
)  # fmt: skip
_PROGRAMS = ("apple_terminal", "ghostty", "hyper", "iterm.app", "tmux", "vscode", "warpterminal", "wezterm")
_MACHINES = ("x86_64", "aarch64", "arm64", "ppc64le", "riscv64", "s390x")
_GPU = re.compile(
    r"(?:(?:NVIDIA|Tesla|Quadro|GeForce|RTX|GTX|TITAN|Graphics|Pro|PRO|Ti|SUPER|Laptop|Ada|GPU|"
    r"Generation|Blackwell|Server|Edition|Workstation|Max|Q|PCIe|PCIE|SXM\d?|HBM\d[a-z]?|NVL|\d{1,3}GB|"
    r"[A-Z]{0,3}\d{1,4}[A-Za-z]{0,2})[ -]){1,12}"
)
"""Words in the names of GPUs. Other names become "other GPU"."""
_LOG_BYTES = 200_000
_CRASHES_MAX = 3
_TRACEBACK_LINE = re.compile(r'^ *File ".*[/\\]vlmtui[/\\]([\w/\\]+\.py)", line (\d{1,6})')


class Check(msgspec.Struct, frozen=True):
    """The result of a check."""

    name: str
    status: Literal["ok", "warn", "fail"]
    message: str
    hint: str = ""
    """What to do; empty if all is well."""
    error: ErrorKind | None = None
    """The kind of error that made the check fail."""
    table: tuple[PictureWay, ...] = ()
    """The ways to draw images in this terminal; only for the check "terminal"."""


def fill_doctor(doctor: argparse.ArgumentParser) -> None:
    doctor.description = (
        "Check Python, settings, vLLM, torch, GPUs, memory, disk and terminal; then load the bundled model, "
        "ask it one question about a bundled image, and check the answer. Exit code 1 when something fails."
    )
    report = "print a block to paste into an issue, without paths, names, addresses, keys, prompts or messages"
    doctor.add_argument("--report", action="store_true", help=report)
    doctor.add_argument("--json", action="store_true", help="print one JSON object")


def doctor(arguments: argparse.Namespace) -> int:
    if arguments.report:
        return run_interruptible(lambda: _report(as_json=arguments.json))
    return run_interruptible(lambda: _check_all(as_json=arguments.json))


async def _check_all(*, as_json: bool) -> int:
    paths = Paths.default()
    checks: list[Check] = []
    for check in machine_checks(paths):
        checks.append(check)
        if not as_json:
            _print(check)
    checks.append(await _check_engine(paths, as_json=as_json))
    failed, warned = ([check.name for check in checks if check.status == status] for status in ("fail", "warn"))
    if as_json:
        print_json({"ok": not failed, "checks": [msgspec.to_builtins(check) for check in checks]})
        return int(bool(failed))
    _print(checks[-1])
    if failed:
        print(f"This machine is not fit yet; failed: {', '.join(failed)}.")
    else:
        print(f"This machine is fit; warnings: {', '.join(warned)}." if warned else "This machine is fit.")
    return int(bool(failed))


async def _report(*, as_json: bool) -> int:
    """Print facts that are safe to publish. Return 0 even if checks failed."""
    paths = Paths.default()
    report = make_report(paths, [*machine_checks(paths), await _check_engine(paths, as_json=True)], os.environ)
    if as_json:
        print_json(report)
    else:
        print(as_text(report))
        note("It contains no paths, names, addresses, keys, prompts or messages of errors.")
    return 0


def machine_checks(paths: Paths) -> Iterator[Check]:
    """Run all checks except the one that loads a model: about a second, without network."""
    hardware = find_hardware()
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield _check_settings(paths)
    yield from engine_checks(paths, hardware)
    yield _check_gpu(hardware)
    yield _check_memory()
    yield check_disk("data", paths.data)
    yield check_disk("hub cache", hub_cache_folder())
    yield from check_logout()
    yield check_terminal()


def _check_settings(paths: Paths) -> Check:
    try:
        settings = load_settings(paths, os.environ)
    except VlmtuiError as error:
        return Check("settings", "fail", error.message, error.hint or "Correct it, or move the file away.", error.kind)
    if warnings := key_warnings(settings):
        return Check("settings", "warn", " ".join(warnings), f"Correct them in {config_file(paths)}.")
    return Check("settings", "ok", f"model {settings.model}, keep-alive {settings.keep_alive}, in {paths.config}")


def engine_checks(paths: Paths, hardware: Hardware) -> Iterator[Check]:
    """Check the vLLM and the PyTorch that a load would use."""
    chosen = choose_engine(Engines(paths))
    record = chosen.record if chosen is not None else None
    install = f"`vlmtui engines install` installs {VARIANTS[hardware.variant].title}."
    if chosen is None and not has_transformers():
        hint = f"Found: {hardware.describe()}. {install}"
        yield Check("vllm", "fail", "No engine is installed, so no model can run.", hint)
        return
    if chosen is None:
        text = (
            f"not installed. Models run in Transformers {_version_of('transformers')} where `--backend transformers` "
            "is given: more slowly, as it answers different prompts in turn"
        )
        yield Check("vllm", "warn", text, f"{install} It is then the default.")
    elif record is not None:
        text = f"{record.version} ({record.variant}), engine {record.name}, {record.interpreter}"
        tried = VARIANTS.get(record.variant)
        if tried is not None and record.version != tried.version:
            yield Check("vllm", "warn", text, f"This vlmtui was tried with {tried.title}: `vlmtui engines install`.")
        else:
            yield Check("vllm", "ok", text)
    else:
        # The CUDA and CPU builds have different distribution names.
        names = sorted(set(importlib.metadata.packages_distributions().get("vllm", [])))
        text = ", ".join(f"{_version_of(name)} ({name})" for name in names) or "of unknown version"
        hint = "Both fill the same folder: uninstall both, and let `vlmtui engines install` install one elsewhere."
        is_double = len(names) > 1
        yield Check("vllm", "fail" if is_double else "ok", f"{text}, beside vlmtui in {sys.prefix}", hint)
    yield _check_torch(record.torch if record is not None else _version_of("torch"), hardware)


def only_transformers(paths: Paths) -> bool:
    """Return whether models can run here only in Transformers, since there is no vLLM."""
    return choose_engine(Engines(paths)) is None and has_transformers()


def _check_torch(found: str, hardware: Hardware) -> Check:
    if not found:
        return Check("torch", "fail", "torch is not installed", "It comes with vLLM: `vlmtui engines install`.")
    if "cpu" not in found.partition("+")[2] or not hardware.gpus:
        return Check("torch", "ok", found)
    status: Literal["ok", "warn"] = "ok" if hardware.variant == "cpu" else "warn"
    text = f"{found}: a CPU build, though there is {hardware.describe()}"
    wanted = hardware.variant if hardware.variant != "cpu" else "cuda"
    hint = f"`vlmtui engines install --variant {wanted}` installs the CUDA build, used unless vLLM is beside vlmtui."
    return Check("torch", status, text, hint)


def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _check_gpu(hardware: Hardware) -> Check:
    machine = Machine.measure()
    if machine.gpus:
        return Check("gpu", "ok", f"{machine.describe()}, driver {hardware.driver or 'unknown'}")
    if find_program("nvidia-smi"):
        hint = "Run `nvidia-smi`; the driver may be missing, or this container may have no access."
        return Check("gpu", "warn", "nvidia-smi is there, but no NVIDIA GPU can be reached", hint)
    return Check("gpu", "ok", "no GPU: models run on the CPU, which is practical for small ones only")


def _check_memory() -> Check:
    memory = psutil.virtual_memory()
    text = f"{gib(memory.available)} of {gib(memory.total)} available, {os.cpu_count()} CPU cores"
    if memory.available < _MEMORY_WANTED:
        hint = f"Even a small model needs about {gib(_MEMORY_WANTED)}: close other programs."
        return Check("memory", "warn", text, hint)
    return Check("memory", "ok", text)


def check_disk(name: str, folder: Path) -> Check:
    """Return how much space a folder has, and whether it can be written; for `data` also its file system."""
    standing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(standing).free
    text = f"{gib(free)} free in {folder}"
    if name == "data":
        try:
            private_dir(folder)
        except VlmtuiError as error:
            return Check(name, "fail", error.message, error.hint, error.kind)
        if is_on_network(folder / FILE):
            holder = other_holder(folder / FILE)
            text += f", a network file system ({file_system_of(folder)}): one machine at a time saves conversations"
            if holder:
                return Check(name, "warn", f"{text}, now {holder}", HELD)
    if not os.access(standing, os.W_OK):
        return Check(name, "warn", f"{folder} is not writable", "Check its permissions.")
    if free < _DISK_WANTED[name]:
        return Check(name, "warn", text, "Large models need tens of GiB: free some, or move the cache with HF_HOME.")
    return Check(name, "ok", text)


_LOGIND = "org.freedesktop.login1"


def check_logout(cgroup: Path = Path("/proc/self/cgroup")) -> Iterator[Check]:
    """Warn if systemd ends what is started here when this user logs out. Yields nothing if it does not, or if that is
    unknown. `cgroup`: the file with the cgroup of this process."""
    try:
        group = cgroup.read_text(errors="replace")
    except OSError:
        return
    lingers = "`loginctl enable-linger`"
    if f"/user@{os.getuid()}.service/" in group:
        if _told("loginctl", "show-user", str(os.getuid()), "--property=Linger") == "Linger=no":
            yield Check("logout", "warn", "systemd ends a loaded model with your last session", f"{lingers} keeps it.")
    elif re.search(r"/session-[^/\n]*\.scope", group):
        asked = ("KillUserProcesses", "KillOnlyUsers", "KillExcludeUsers")
        object_ = ("get-property", _LOGIND, "/org/freedesktop/login1", f"{_LOGIND}.Manager")
        kills, only, never = [*_told("busctl", "--system", *object_, *asked).splitlines(), "", "", ""][:3]
        named = f'"{getpass.getuser()}"'
        if kills == "b true" and (only == "as 0" or named in only) and never and named not in never:
            text = "systemd ends a loaded model when you log out (KillUserProcesses in logind.conf)"
            yield Check("logout", "warn", text, f"Start vlmtui with `systemd-run --user --scope`, after {lingers}.")


def _told(name: str, *words: str) -> str:
    return (ask_program(name, *words, within_s=2) or "").strip()


def check_terminal(terminal: Terminal | None = None) -> Check:
    """Check the terminal by its environment variables, and by its answers to questions about images. `terminal`: these
    answers; None: ask the terminal now."""
    if terminal is None:
        with TerminalQuestion().ask() as asked:
            terminal = asked.answer()
    environment, ways = os.environ, terminal.ways
    term = environment.get("TERM", "")
    facts = [f"TERM={term or 'not set'}", _colours(term)]
    if "SSH_CONNECTION" in environment:
        facts.append("over SSH")
    best = best_way(list(ways))
    if best is None:
        facts.append("no images: the terminal only prints")
    else:
        facts.append(f"{_WAY_TITLES[best.name]} through tmux" if best.is_passed_on else _WAY_TITLES[best.name])
        if best.name in ("kitty", "iterm", "sixel"):
            facts.append("{}×{} pixels a cell".format(*terminal.cell))
    if forced := environment.get("VLMTUI_GRAPHICS"):
        facts.append(f"but VLMTUI_GRAPHICS={forced}")
    hint = ""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        facts.append("not on a terminal now: `vlmtui ask` works, the app does not")
    elif not term or term == "dumb":
        hint = "Set TERM to your terminal's type, for example xterm-256color."
    elif terminal.answers.attributes is None and terminal.answers.own_attributes is not None and ways:
        hint = ways[0].hint  # the multiplexer answers, but does not pass questions on
    return Check("terminal", "warn" if hint else "ok", ", ".join(facts), hint, table=ways)


def _colours(term: str) -> str:
    if "NO_COLOR" in os.environ:
        return "no colour (NO_COLOR)"
    if has_true_colour(os.environ):
        return "true colour"
    if multiplexer_of(os.environ) == "screen":
        return "256 colours (screen passes on no more)"
    return "256 colours" if "256color" in term else "few colours"


async def _check_engine(paths: Paths, *, as_json: bool) -> Check:
    """Load the bundled model, or use a running one, and ask it about an image with known content."""
    choice = BackendChoice(TRANSFORMERS_BACKEND) if only_transformers(paths) else None
    try:
        application = build(settings=Settings(keep_alive="0"))
        model = resolve(application.registry, DEFAULT_MODEL, choice)
        image = stage_image(bundled("samples") / _SAMPLE, application.paths.media)
        question = user_turn("What is in this image?", [image])
        case = Question(skill="what", turns=(question,), expected=_EXPECTED)
        sampling = application.settings.sampling.over(model.family.sampling)
        setup = AskSetup(application, model, as_json=as_json)
        async with ready_engine(setup) as (engine, _, load_s):
            result = await ask_question(engine, model.family, case, sampling)
    except VlmtuiError as error:
        lines = error.detail.strip().splitlines()
        message = f"{error.message} ({lines[-1]})" if lines else error.message
        return Check("engine", "fail", message, error.hint, error.kind)
    if result.outcome is QuestionOutcome.RIGHT:
        text = f"loaded in {load_s:.1f} s; described the image correctly: {result.seen}"
        return Check("engine", "ok", text)
    if result.outcome is QuestionOutcome.FAILED:
        return Check("engine", "fail", result.seen)
    hint = "The engine runs but computes wrong results: its build may not fit this machine. Try another vLLM or torch."
    return Check("engine", "fail", f"the bundled model is wrong about {_SAMPLE}: {result.seen!r}", hint)


def _print(check: Check) -> None:
    for line in printed_check(check):
        print(visible(line), flush=True)


def printed_check(check: Check) -> Iterator[str]:
    """Yield the lines of a check. If it has a table, each row is a way to draw images: whether this terminal supports
    it, why, and a hint."""
    yield f"{check.status:<4}  {check.name:<10} {check.message}"
    if check.hint and check.status != "ok":
        yield f"{'':<17}→ {check.hint}"
    told = ""
    for way in check.table:
        yield f"{'':<6}{_WAY_TITLES[way.name]:<28}{'yes' if way.is_possible else 'no':<5}{way.reason}"
        if way.hint and way.hint != told and not way.is_possible:
            told = way.hint
            yield f"{'':<39}→ {way.hint}"


def make_report(paths: Paths, checks: Sequence[Check], environment: Mapping[str, str]) -> dict[str, object]:
    """Return the facts of `--report`, sizes in GiB. Takes about a second; loads no model and uses no network."""
    hardware = find_hardware()
    memory = psutil.virtual_memory()
    return {
        "vlmtui": vlmtui.__version__,
        "python": version_text(platform.python_version()),
        "system": _system(),
        "packages": {name: _installed(name) for name in _PACKAGES},
        "terminal": _terminal(environment, checks),
        "settings": _settings(paths, environment),
        "engines": _engines(paths),
        "gpus": [_gpu(name) for name in hardware.gpus],
        "driver": version_text(hardware.driver) if hardware.driver else "",
        "memory": {
            "total": round(memory.total / GIB, 1),
            "available": round(memory.available / GIB, 1),
            "cores": os.cpu_count() or 0,
        },
        "hub": {
            "own_endpoint": bool(environment.get("HF_ENDPOINT")),
            "token": bool(environment.get("HF_TOKEN")) or (hub_cache_folder().parent / "token").is_file(),
            "offline": environment.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"),
        },
        "checks": {check.name: f"{check.status} ({check.error})" if check.error else check.status for check in checks},
        "crashes": [crash for log in ("app.log", "cli.log") for crash in _crashes(paths.logs / log)],
    }


def as_text(report: Mapping[str, object]) -> str:
    rows = [(name, line) for name, value in report.items() for line in _value_lines(value)]
    width = max(len(name) for name, _ in rows)
    return "\n".join(["```text", *(f"{name:<{width}}  {line}" for name, line in rows), "```"])


def _value_lines(value: object) -> list[str]:
    """Return a field's value, a line for each item of a list."""
    if isinstance(value, list):
        return [line for item in value for line in _value_lines(item)] or ["none"]
    if isinstance(value, dict):
        return [", ".join(f"{name} {_value_text(inner)}" for name, inner in value.items()) or "none"]
    return [_value_text(value)]


def _value_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "unknown" if value in (None, "") else str(value)


def among(text: str, known: Sequence[str]) -> str:
    """Return the text if it is one of `known`, else "other"; "none" if it is empty."""
    if not text:
        return "none"
    return text if text in known else OTHER


def version_text(text: str) -> str:
    """Return a version; private additions become "other": `0.32.0+cpu` stays, `0.32.0+mine` becomes `0.32.0+other`."""
    public, plus, local = text.partition("+")
    found = _VERSION.match(public)
    if found is None:
        return OTHER
    shown = found[0] if found[0] == public else f"{found[0]} (and more)"
    return shown + (f"+{local if _LOCAL_VERSION.fullmatch(local) else OTHER}" if plus else "")


def _gpu(name: str) -> str:
    return name if _GPU.fullmatch(f"{name} ") else f"{OTHER} GPU"


def _system() -> dict[str, str]:
    library, version = platform.libc_ver()
    return {
        "kernel": f"{among(platform.system(), ('Linux', 'Darwin'))} {version_text(platform.release())}",
        "machine": among(platform.machine(), _MACHINES),
        "libc": f"{library} {version_text(version)}" if library == "glibc" else among(library, ("musl",)),
    }


def _installed(name: str) -> str:
    found = _version_of(name)
    return version_text(found) if found else "missing"


def _terminal(environment: Mapping[str, str], checks: Sequence[Check]) -> dict[str, str | bool]:
    best = next((best_way(list(check.table)) for check in checks if check.table), None)
    size = shutil.get_terminal_size()
    return {
        "TERM": among(environment.get("TERM", ""), _TERMS),
        "program": among(environment.get("TERM_PROGRAM", "").lower(), _PROGRAMS),
        "graphics": best.name if best is not None else "off",
        "size": f"{size.columns}x{size.lines}",
        "true_colour": has_true_colour(environment),
        "no_colour": "NO_COLOR" in environment,
        "tmux": "TMUX" in environment,
        "ssh": "SSH_CONNECTION" in environment,
    }


def _settings(paths: Paths, environment: Mapping[str, str]) -> dict[str, str]:
    """Return where each setting comes from, "environment" or "file", without its value."""
    try:
        load_settings(paths, environment)
        origins = sources(paths, environment)
    except VlmtuiError:
        return {"all": "invalid"}
    return {name: "environment" if origins[name].isupper() else "file" for name in setting_names() if name in origins}


def _engines(paths: Paths) -> list[str]:
    """Return a line for each engine: `cuda 0.32.0, torch 2.13.0+cu130, Python 3.13.1, chosen`."""
    chosen = choose_engine(Engines(paths))
    found = []
    if chosen is not None and chosen.record is None:
        names = importlib.metadata.packages_distributions().get("vllm", [])
        vllm = _installed(names[0]) if names else "unknown"
        found.append(f"beside vlmtui {vllm}, torch {_installed('torch')}, chosen")
    for record in Engines(paths).all():
        source, python = among(record.variant, ("cpu", "cuda", "cuda12", "added")), version_text(record.python)
        line = f"{source} {version_text(record.version)}, torch {version_text(record.torch)}, Python {python}"
        found.append(f"{line}, chosen" if chosen is not None and chosen.record == record else line)
    return found


def _crashes(log: Path) -> list[str]:
    try:
        return crashes_in(read_tail(log, bytes_max=_LOG_BYTES).decode("utf-8", "replace"))
    except (OSError, VlmtuiError):
        return []


def crashes_in(log: str) -> list[str]:
    """Return the newest three tracebacks of a log: the exception's type, and vlmtui's line that raised it. Only
    built-in exceptions and vlmtui's own files are named, since a log may contain any text."""
    found: list[str] = []
    for traceback in log.split("Traceback (most recent call last):\n")[1:]:
        place, lines = "outside vlmtui", iter(traceback.splitlines())
        for line in lines:
            if (frame := _TRACEBACK_LINE.match(line)) and (Path(vlmtui.__file__).parent / frame[1]).is_file():
                place = f"vlmtui/{frame[1]}:{frame[2]}"
            elif line and not line.startswith(" "):
                found.append(f"{_exception(line)}, {place}")
                break
    return found[-_CRASHES_MAX:]


def _exception(line: str) -> str:
    """Return the exception type in a traceback's last line, if it is built in or vlmtui's."""
    name = line.partition(":")[0].strip()
    kind = getattr(builtins, name, None) if name.isidentifier() else None
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return name
    return "VlmtuiError" if name == "vlmtui.errors.VlmtuiError" else "another exception"
