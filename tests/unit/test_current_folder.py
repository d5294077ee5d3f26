"""Nothing in the current folder runs: it may be a data set or a checkpoint that someone else made.

In these tests the folder has modules with the names of those that our processes import, and programs with the names of
those that we start. Each writes a line to a file when it runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.support.fake_worker import fake_launcher
from tests.support.hosts import patient_host
from vlmtui.domain.engine import EngineReady, LoadSpec
from vlmtui.domain.model_reading import ReadRequest
from vlmtui.engine.local.model_reader import LocalModelReader
from vlmtui.engines.builds import VARIANTS, find_hardware
from vlmtui.engines.installed import describe_interpreter, find_python
from vlmtui.engines.uv import uv_for
from vlmtui.errors import VlmtuiError
from vlmtui.media.clipboard import clipboard_pictures
from vlmtui.media.pages import page_picture
from vlmtui.paths import Paths
from vlmtui.processes import find_program, safe_environment, search_path
from vlmtui.terminal import Passage

pytestmark = pytest.mark.process
SOURCE = Path(__file__).parents[2] / "src"
MODULES = ("ensurepip", "json", "msgspec", "numpy", "pip", "psutil", "pypdfium2", "resource", "sitecustomize", "venv")
PACKAGES = ("PIL", "tests", "torch", "transformers", "vllm", "vlmtui")
PROGRAMS = ("nvidia-smi", "python3", "python3.13", "tmux", "uv", "wl-paste", "xclip")


class HostileFolder:
    """A current folder with such modules and programs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.paper = path / "paper.pdf"
        self._canary = path / "RAN"
        path.mkdir()
        Image.new("RGB", (40, 20), "red").save(self.paper)
        code = f"import sys\nprint(__file__, *sys.orig_argv[:6], file=open({str(self._canary)!r}, 'a'))\n"
        for name in MODULES:
            (path / f"{name}.py").write_text(code)
        for name in PACKAGES:
            (path / name).mkdir()
            (path / name / "__init__.py").write_text(code)
        for name in PROGRAMS:
            (path / name).write_text(f"#!/bin/sh\necho $0 >> '{self._canary}'\n")
            (path / name).chmod(0o755)

    def ran(self) -> str:
        return self._canary.read_text() if self._canary.exists() else ""


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostileFolder:
    found = HostileFolder(tmp_path / "hostile")
    monkeypatch.chdir(found.path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", str(SOURCE), "PIL/.."]))
    monkeypatch.setenv("PATH", os.pathsep.join(["", ".", os.environ["PATH"]]))
    return found


def vlmtui(hostile: HostileFolder, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as its entry script does: without the current folder on its own path."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "vlmtui", *words],
        cwd=hostile.path,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "VLMTUI_DATA_DIR": str(hostile.path.parent / "data")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_modules_of_the_folder_would_run(hostile: HostileFolder) -> None:
    """The modules and programs do record that they run."""
    subprocess.run([sys.executable, "-c", "import PIL"], check=False)
    assert "sitecustomize.py" in hostile.ran() and "PIL/__init__.py" in hostile.ran()


def test_a_page_of_a_document_is_drawn(hostile: HostileFolder) -> None:
    assert page_picture(Path("paper.pdf")).pages == 1
    done = vlmtui(hostile, "prompt", "shapes", "--image", "paper.pdf", "hi")
    assert (done.returncode, hostile.ran()) == (0, ""), done.stderr


def test_templates_and_models_are_read(hostile: HostileFolder) -> None:
    reader = LocalModelReader(Paths.below(hostile.path.parent / "data"))
    reader.read(ReadRequest(templates={"one": "{{ messages }}"}))
    assert hostile.ran() == ""


@pytest.mark.engine
def test_a_model_folder_is_read_with_the_engines_packages(hostile: HostileFolder) -> None:
    done = vlmtui(hostile, "lint", str(SOURCE / "vlmtui" / "bundled" / "shapes"))
    assert (done.returncode, hostile.ran()) == (0, ""), done.stderr


async def test_a_worker_starts(hostile: HostileFolder, short_path: Path) -> None:
    host = patient_host(Paths.below(short_path), fake_launcher())
    worker = await host.open(LoadSpec(model="/models/fake", name="fake"), client="test", keep_alive_s=0)
    assert isinstance([event async for event in worker.load()][-1], EngineReady)
    await worker.shutdown()
    assert hostile.ran() == ""


@pytest.mark.engine
def test_the_engine_answers(hostile: HostileFolder) -> None:
    """This starts guardian, server, engine core, and the other processes of vLLM."""
    done = vlmtui(hostile, "ask", "--keep-alive", "0", "--image", "paper.pdf", "What is in this image?")
    assert (done.returncode, hostile.ran()) == (0, ""), done.stderr


def test_engines_are_listed_added_and_set_up(hostile: HostileFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """This runs all steps of an installation that need no network."""
    assert vlmtui(hostile, "engines").returncode == 0
    describe_interpreter(Path(sys.executable))
    find_hardware()
    folder = hostile.path.parent / "environment"
    if not find_program("uv", {"PATH": str(Path(sys.executable).parent)}):
        pytest.skip("uv is not installed here")
    monkeypatch.setenv("PATH", os.pathsep.join([os.environ["PATH"], str(Path(sys.executable).parent)]))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    uv = uv_for(folder, find_python(VARIANTS["cpu"]))
    version = describe_interpreter(uv.python).python
    assert tuple(map(int, version.split(".")[:2])) >= (3, 11) and uv.environment["UV_NO_INDEX"] == "1"
    assert not uv.offers("torch==0")
    assert hostile.ran() == ""


def test_programs_of_the_folder_are_not_started(hostile: HostileFolder) -> None:
    with pytest.raises(VlmtuiError):
        clipboard_pictures(hostile.path, environ={**os.environ, "WAYLAND_DISPLAY": "none", "DISPLAY": "none"})
    Passage(is_through=True, environment={**os.environ, "TMUX_PANE": "%1"}).locate()
    assert hostile.ran() == ""


def test_relative_entries_of_search_paths_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"PYTHONPATH": f":.:lib:{tmp_path}/mine", "HOME": "/home/me", "PATH": ":.:/bin"}
    assert search_path(given) == [f"{tmp_path}/mine"]
    safe = {"PATH": "/bin", "PYTHONSAFEPATH": "1"}
    assert safe_environment(given) == {"PYTHONPATH": f"{tmp_path}/mine", "HOME": "/home/me", **safe}
    assert safe_environment({"PYTHONPATH": ":", "PATH": "."}) == {**safe, "PATH": os.defpath}
    monkeypatch.chdir(SOURCE.parent)
    assert search_path({"PYTHONPATH": "src:tests"}) == [str(SOURCE)]  # its code runs already
    (tmp_path / "tool").touch(0o755)
    assert find_program("tool", {"PATH": f":.:{tmp_path}"}) == f"{tmp_path}/tool"
    monkeypatch.chdir(tmp_path)
    assert find_program("tool", {"PATH": ":."}) is None
