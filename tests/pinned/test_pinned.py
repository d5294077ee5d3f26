"""vLLM 0.23.0, installed for real into an environment of its own (6 GB, some minutes): `make test-pinned`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

import vlmtui.worker
from tests.support.equality import chat, raw, report_of
from tests.support.hosts import patient_host
from tests.support.pictures import Easel
from tests.support.processes import until_none_lives
from tests.zoo.kit import make_checkpoint
from vlmtui.domain.conversation import Prompt
from vlmtui.domain.engine import BackendChoice, EngineReady, LoadFailed
from vlmtui.engine.local.client import WorkerClient
from vlmtui.engines.installed import Engines
from vlmtui.errors import ErrorKind
from vlmtui.paths import Paths, bundled
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import DEFAULT_MODEL, resolve, with_trust

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif("VLMTUI_TEST_PINNED" not in os.environ, reason="make test-pinned runs it"),
    pytest.mark.timeout(3600),
]
VERSION = "0.23.0"
NAME = "vllm-0.23.0-cpu"
FAMILIES = ("qwen_vl", "qwen_vl_chat", "hyperclovax_seed_vision")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    """The folder with everything of this test: that of the environment variable, or one that goes with it."""
    import tempfile

    kept = os.environ["VLMTUI_TEST_PINNED"]
    if Path(kept).is_absolute():
        yield Path(kept)
        return
    with tempfile.TemporaryDirectory(prefix="vlmtui-", dir="/tmp") as folder:
        yield Path(folder)


def environment(data: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "VLMTUI_DATA_DIR": str(data), "HF_HUB_OFFLINE": "1", **more}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "vlmtui", *words]


def run(data: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), env=environment(data, **more), capture_output=True, text=True, check=False)


def begin(data: Path) -> subprocess.Popen[str]:
    words = command("engines", "install", VERSION, "--variant", "cpu", "--json")
    return subprocess.Popen(words, env=environment(data), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def installed(data: Path) -> Path:
    """A first installation is killed in its midst, then two are begun at once: one of them makes the environment."""
    engines = Engines(Paths.below(data))
    if not engines.all():
        killed = begin(data)
        assert killed.stderr is not None
        while "Resolved" not in killed.stderr.readline():  # nothing is downloaded where uv has kept it
            assert killed.poll() is None
        killed.kill()
        killed.wait()
        assert engines.all() == [] and engines.incomplete() == [NAME]
        assert "is incomplete and not used" in run(data, "engines").stderr
        both = [begin(data), begin(data)]
        with ThreadPoolExecutor() as readers:  # a pipe that nobody reads stops the one that has the lock
            told = list(readers.map(lambda one: one.communicate(), both))
        assert [one.returncode for one in both] == [0, 0]
        assert sum("Waiting for another installation to finish" in text for _, text in told) == 1
        assert all(json.loads(text) == {"installed": NAME} for text, _ in told)
    [record] = engines.all()
    assert record.pinned and record.version == VERSION and record.packages["transformers"] == "4.57.6"
    return data


def test_without_a_network_no_partial_environment_is_used(tmp_path: Path) -> None:
    nowhere = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "HTTP_PROXY"), "http://127.0.0.1:9")
    more = {"UV_CACHE_DIR": str(tmp_path / "cache"), "UV_HTTP_TIMEOUT": "5", **nowhere}
    done = run(tmp_path, "engines", "install", VERSION, "--variant", "cpu", **more)
    assert done.returncode == 1
    assert "failed with exit code" in done.stderr, done.stderr  # uv, or pip that fetches it
    assert Engines(Paths.below(tmp_path)).all() == []


async def load(data: Path, spec: Any) -> tuple[WorkerClient, EngineReady | LoadFailed]:
    client = await patient_host(Paths.below(data)).open(spec, client="test", keep_alive_s=60)
    async for event in client.load():
        if isinstance(event, EngineReady | LoadFailed):
            return client, event
    raise AssertionError("the load has no end")


async def test_the_old_version_gives_the_same_tokens_and_a_kill_leaves_nothing(
    installed: Path, engine: WorkerClient, tmp_path: Path
) -> None:
    spec = resolve(Registry.bundled(), DEFAULT_MODEL, BackendChoice("pinned", VERSION)).spec
    wished = 1_000_000  # more than the model's own context, which the server then gets
    spec = msgspec.structs.replace(spec, engine_args={**spec.engine_args, "max_model_len": wished})
    client, ready = await load(installed, spec)
    assert isinstance(ready, EngineReady), ready
    assert ready.info.engine_version == VERSION
    assert ready.info.notes == (
        f"The model's own context is {ready.info.max_model_len:,} tokens; 1,000,000 were asked for.",
    )
    easel = Easel(tmp_path)
    pictures = [easel.picture((one, "circle", "left")).attachment for one in ("red", "blue")]
    asked: list[Prompt] = [
        chat("What is in this image?", pictures[0]), raw("What is in this image?", pictures[0]),
        chat("What is different?", *pictures), raw("What is different?", *pictures), chat("Hello!"), raw("Hello!"),
    ]  # fmt: skip
    for number, prompt in enumerate(asked):
        here, there = await report_of(engine, prompt, number), await report_of(client, prompt, number)
        assert here.prompt is not None and there.prompt is not None
        assert here.prompt.token_ids == there.prompt.token_ids
        assert (here.ids, here.text) == (there.ids, there.text)
    record = Endpoint.of(Paths.below(installed), spec).read_record()
    assert record is not None
    guardian = psutil.Process(record.pid)
    pids = [guardian.pid, *(process.pid for process in guardian.children(recursive=True))]
    assert len(pids) >= 5
    os.kill(guardian.pid, signal.SIGKILL)
    await asyncio.wait_for(client.closed(), 120)
    await until_none_lives(pids)


def test_the_old_version_repeats_recorded_prompts_and_answers(installed: Path, tmp_path: Path) -> None:
    golden, kept = tmp_path / "golden", tmp_path / "kept.json"
    cases = [word for name in ("image", "images", "text") for word in ("--case", name)]
    recorded = run(installed, "check", "record", str(golden), "--model", "shapes", *cases)
    assert recorded.returncode == 0, recorded.stderr
    picture = str(bundled("samples") / "circle.png")
    asked = run(installed, "ask", "--image", picture, "What is this?", "--export", str(kept), "--keep-alive", "0")
    assert asked.returncode == 0 and "red circle" in asked.stdout, asked.stderr
    engines = ("here", f"vllm=={VERSION}")
    words = [word for name in engines for word in ("--on", name)]
    ran = run(installed, "check", str(golden), str(kept), *words, "--json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads(ran.stdout)
    records = {one["engine"]: one["fingerprint"] for one in told["engines"]}
    assert {name: one["backend"] for name, one in records.items()} == dict(
        zip(engines, ("vllm", "pinned"), strict=True)
    )
    assert records[engines[1]]["engine_version"] == VERSION != records["here"]["engine_version"]
    assert len(told["results"]) == 8 and {one["engine"] for one in told["results"]} == set(engines)
    assert all(one["same"] for one in told["results"])


@pytest.fixture(scope="module")
def results(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The zoo's results, by family."""
    folder = tmp_path_factory.mktemp("zoo")
    search = os.pathsep.join([str(Path(vlmtui.worker.__file__).parent / "site"), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-m", "tests.zoo", *FAMILIES, "--keep", str(folder), "--json", str(folder / "all.json")]
    done = subprocess.run(
        words, cwd=ROOT, env=environment(installed, PYTHONPATH=search), capture_output=True, text=True, check=False
    )
    assert (folder / "all.json").exists(), done.stdout[-2000:] + done.stderr[-2000:]
    found: dict[str, dict[str, str]] = json.loads((folder / "all.json").read_text())
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_of_the_old_version_answers_in_both_modes(results: dict[str, dict[str, str]], family: str) -> None:
    cases = {f"{case} {mode}" for case in ("image", "images") for mode in ("chat", "raw")}
    assert cases | {"load"} <= set(results[family]), results[family]
    assert {case: text for case, text in results[family].items() if not text.startswith("ok")} == {}


async def test_code_without_a_yes_does_not_run(installed: Path, tmp_path: Path) -> None:
    folder = make_checkpoint("qwen_vl", tmp_path / "Qwen-VL")
    asked = run(installed, "ask", "--model", str(folder), "Hello")
    assert asked.returncode == 1
    assert "needs to run Python code from its own repository" in asked.stderr
    model = with_trust(resolve(Registry.bundled(), str(folder)))
    (folder / "tokenization_qwen.py").write_text("raise SystemExit('this was never allowed')\n")
    client, failed = await load(installed, model.spec)
    await client.shutdown()
    assert isinstance(failed, LoadFailed)
    assert failed.failure.kind is ErrorKind.REMOTE_CODE_REFUSED
    assert "has changed since you allowed it" in failed.failure.message


def test_a_removed_version_leaves_nothing(installed: Path) -> None:
    if Path(os.environ["VLMTUI_TEST_PINNED"]).is_absolute():
        pytest.skip("the folder is to be kept")
    assert run(installed, "engines", "remove", NAME).returncode == 0
    assert list(Engines(Paths.below(installed)).folder.iterdir()) == []
