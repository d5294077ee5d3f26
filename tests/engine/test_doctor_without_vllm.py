"""An environment with Transformers but no vLLM: doctor calls it fit, and says what that means."""

from __future__ import annotations

import json
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.support.terminal import search_paths
from vlmtui.cli.doctor import engine_checks, only_transformers
from vlmtui.engines.builds import Hardware
from vlmtui.paths import Paths

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an environment that has all of this one but vLLM."""
    home = tmp_path / "env"
    venv.create(home, symlinks=True)
    scheme = {"base": str(home), "platbase": str(home)}
    packages = Path(sysconfig.get_path("purelib", "venv", scheme))
    for found in Path(sysconfig.get_path("purelib")).iterdir():
        if not found.name.startswith(("vllm", "_virtualenv", "__pycache__")):
            (packages / found.name).symlink_to(found)
    return home / "bin" / "python"


def run(python: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**search_paths(), "HOME": str(home), "VLMTUI_DATA_DIR": str(home), "TERM": "dumb", "LANG": "C.UTF-8"}
    command = [str(python), "-m", "vlmtui", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def test_transformers_without_vllm_is_a_warning(python: Path, short_path: Path) -> None:
    ran = run(python, short_path, "doctor", "--json")
    report = json.loads(ran.stdout)
    checks = {check["name"]: check for check in report["checks"]}
    assert (ran.returncode, report["ok"]) == (0, True), report
    assert checks["vllm"]["status"] == "warn"
    assert "`--backend transformers`" in checks["vllm"]["message"]
    assert "`vlmtui engines install`" in checks["vllm"]["hint"]
    assert checks["torch"]["status"] == "ok"
    assert "yellow star" in checks["engine"]["message"]
    asked = run(python, short_path, "ask", "--model", "shapes", "What is this?")
    assert asked.returncode != 0
    assert "vLLM is not installed." in asked.stderr and "`--backend transformers` runs" in asked.stderr


def test_with_vllm_the_doctor_does_not_mention_transformers(tmp_path: Path) -> None:
    paths = Paths.below(tmp_path)
    assert not only_transformers(paths)
    assert all("--backend" not in check.message for check in engine_checks(paths, Hardware()))


def test_without_both_no_model_can_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    [check] = engine_checks(Paths.below(tmp_path), Hardware())
    assert (check.status, check.message) == ("fail", "No engine is installed, so no model can run.")
