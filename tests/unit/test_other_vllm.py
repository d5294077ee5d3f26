"""Another vLLM's files over the compiled parts of the installed one."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from zipfile import ZipFile

from other_vllm import lay_over, main, unmet


def test_compiled_parts_come_from_here_and_all_else_from_the_wheel(tmp_path: Path) -> None:
    installed, folder, wheel = tmp_path / "vllm", tmp_path / "over", tmp_path / "vllm-9.1.0-cp38-abi3-any.whl"
    for name, text in {"__init__.py": "old", "gone.py": "old", "ops/_C.so": "compiled", "v1/x.json": "old"}.items():
        (installed / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / name).write_text(text)
    with ZipFile(wheel, "w") as archive:
        for name in ("vllm/__init__.py", "vllm/v1/x.json", "vllm/ops/_C.so", "vllm/_C_gpu.so", "other/file.py"):
            archive.writestr(name, "new")
        archive.writestr("vllm-9.1.0.dist-info/METADATA", "Name: vllm\nRequires-Dist: numpy\nRequires-Dist: zen<2\n")
        archive.writestr("vllm-9.1.0.dist-info/entry_points.txt", "[vllm.general_plugins]\n")
    folder.mkdir()
    assert lay_over(wheel, installed, folder) == ["numpy", "zen<2"]
    found = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    metadata = found.pop("vllm-9.1.0+cpu.dist-info/METADATA")
    assert "Version: 9.1.0+cpu" in metadata
    assert found == {
        "vllm/__init__.py": "new", "vllm/v1/x.json": "new", "vllm/ops/_C.so": "compiled",
        "vllm-9.1.0+cpu.dist-info/entry_points.txt": "[vllm.general_plugins]\n",
    }  # fmt: skip


def test_what_the_release_wants_otherwise_is_named() -> None:
    here = importlib.metadata.version("msgspec")
    wanted = ["msgspec", "msgspec<0.1", "no-such-package-here>=2", "msgspec<0.1; extra == 'x'", "pytest>=1"]
    assert list(unmet(wanted)) == [f"msgspec <0.1 (here: {here})", "no-such-package-here >=2 (here: none)"]


def test_a_missing_version_is_asked_for() -> None:
    assert main() == main("-m", "tests.zoo") == 2
