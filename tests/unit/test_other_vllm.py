"""Another vLLM's files over the compiled parts of the installed one."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import pytest

import other_vllm
from other_vllm import lay_over, main, unmet


def wheel_of(folder: Path) -> Path:
    wheel = folder / "vllm-9.1.0-cp38-abi3-any.whl"
    with ZipFile(wheel, "w") as archive:
        for name in ("vllm/__init__.py", "vllm/v1/x.json", "vllm/ops/_C.so", "vllm/_C_gpu.so", "other/file.py"):
            archive.writestr(name, "new")
        archive.writestr("vllm-9.1.0.dist-info/METADATA", "Name: vllm\nRequires-Dist: numpy\nRequires-Dist: zen<2\n")
        archive.writestr("vllm-9.1.0.dist-info/entry_points.txt", "[vllm.general_plugins]\n")
    return wheel


def test_compiled_parts_come_from_here_and_all_else_from_the_wheel(tmp_path: Path) -> None:
    installed, folder = tmp_path / "vllm", tmp_path / "over"
    for name, text in {"__init__.py": "old", "gone.py": "old", "ops/_C.so": "compiled", "v1/x.json": "old"}.items():
        (installed / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / name).write_text(text)
    folder.mkdir()
    assert lay_over(wheel_of(tmp_path), installed, folder) == ["numpy", "zen<2"]
    found = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    metadata = found.pop("vllm-9.1.0+cpu.dist-info/METADATA")
    assert "Version: 9.1.0+cpu" in metadata
    assert found == {
        "vllm/__init__.py": "new", "vllm/v1/x.json": "new", "vllm/ops/_C.so": "compiled",
        "vllm-9.1.0+cpu.dist-info/entry_points.txt": "[vllm.general_plugins]\n",
    }  # fmt: skip


def test_python_runs_with_the_release_and_what_it_needs_besides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[tuple[list[str], str]] = []

    def run(command: list[str], env: dict[str, str] | None = None, check: bool = False) -> SimpleNamespace:
        ran.append((command, (env or {}).get("PYTHONPATH", "")))
        return SimpleNamespace(returncode=3)

    spec = SimpleNamespace(origin=str(tmp_path / "here" / "vllm" / "__init__.py"))
    monkeypatch.setattr(other_vllm, "find_spec", lambda name: spec)
    monkeypatch.setattr(other_vllm, "download", lambda version, folder: wheel_of(tmp_path))
    monkeypatch.setattr("subprocess.run", run)
    assert main("9.1.0", "--with=orjson", "--with=cbor2", "-m", "tests.zoo", "--with=kept") == 3
    (install, _), (command, path) = ran
    assert install[-2:] == ["orjson", "cbor2"] and command[1:] == ["-m", "tests.zoo", "--with=kept"]
    assert install[install.index("--target") + 1] == path.split(os.pathsep)[1]
    assert "zen <2 (here: none)" in capsys.readouterr().out


def test_what_the_release_wants_otherwise_is_named() -> None:
    here = importlib.metadata.version("msgspec")
    wanted = ["msgspec", "msgspec<0.1", "no-such-package-here>=2", "msgspec<0.1; extra == 'x'", "pytest>=1"]
    assert list(unmet(wanted)) == [f"msgspec <0.1 (here: {here})", "no-such-package-here >=2 (here: none)"]


def test_a_missing_version_is_asked_for() -> None:
    assert main() == main("-m", "tests.zoo") == 2
