"""The start-up hooks that the worker puts on the PYTHONPATH of vLLM's processes.

Every test starts a Python of its own, as vLLM does. Where installed packages matter, tiny stand-ins for torch and
torchvision shadow the real ones, so that the tests need neither.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import vlmtui

SITE = Path(vlmtui.__file__).parent / "worker" / "site"

FAKE_TORCH = """
class Namespace:
    pass

class ops:
    torchvision = Namespace()

class library:
    @staticmethod
    def define(name, schema):
        print("defined", name)
        setattr(ops.torchvision, name.partition("::")[2], schema)
"""


def run_python(code: str, *path: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh Python whose PYTHONPATH holds the hooks' folder and then `path`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SITE, *path))), **more}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def install_fake(folder: Path, name: str, package_version: str, source: str = "") -> None:
    """Make an importable package with a version that `importlib.metadata` finds."""
    (folder / f"{name}.py").write_text(source)
    info = folder / f"{name}-{package_version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {package_version}\n")


@pytest.mark.parametrize(
    ("torch", "torchvision", "defined"),
    [
        ("2.13.0+cpu", "0.28.0", True),
        ("2.13.0+cpu", "0.28.0+cu130", True),
        ("2.13.0+cpu", "0.28.0+cpu", False),
        ("2.13.0", "0.28.0", False),
        ("2.13.0+cu130", "0.28.0+cu130", False),
    ],
)
def test_operators_are_declared_only_for_a_cpu_torch_with_another_torchvision(
    tmp_path: Path, torch: str, torchvision: str, defined: bool
) -> None:
    install_fake(tmp_path, "torch", torch, FAKE_TORCH)
    install_fake(tmp_path, "torchvision", torchvision, "print('torchvision')")

    done = run_python("import torchvision", tmp_path)

    assert done.stderr == ""
    declared = ["defined torchvision::nms", "defined torchvision::qnms"] if defined else []
    assert done.stdout.splitlines() == [*declared, "torchvision"]


def test_an_operator_that_exists_is_left_alone(tmp_path: Path) -> None:
    install_fake(tmp_path, "torch", "2.13.0+cpu", FAKE_TORCH + "\nNamespace.nms = 'its own'\n")
    install_fake(tmp_path, "torchvision", "0.28.0")

    assert run_python("import torchvision", tmp_path).stdout.split() == ["defined", "torchvision::qnms"]


def test_starting_python_imports_no_more_than_without() -> None:
    slow = {"torch", "torchvision", "typing", "pathlib", "importlib.metadata"}
    code = f"import sys; print(sorted({slow} & set(sys.modules)))"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run_python(code).stdout == plain.stdout


def test_a_missing_torchvision_is_still_reported_as_missing(tmp_path: Path) -> None:
    install_fake(tmp_path, "torch", "2.13.0+cpu", FAKE_TORCH)

    done = run_python(
        "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]; import torchvision", tmp_path
    )

    assert "No module named 'torchvision'" in done.stderr


def test_children_have_the_hooks_too(tmp_path: Path) -> None:
    install_fake(tmp_path, "torch", "2.13.0+cpu", FAKE_TORCH)
    install_fake(tmp_path, "torchvision", "0.28.0")
    script = tmp_path / "parent.py"
    script.write_text(
        "import importlib, multiprocessing\n"
        "if __name__ == '__main__':\n"
        "    spawn = multiprocessing.get_context('spawn')\n"
        "    child = spawn.Process(target=importlib.import_module, args=('torchvision',))\n"
        "    child.start()\n"
        "    child.join()\n"
    )
    done = run_python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')", tmp_path)

    assert "defined torchvision::nms" in done.stdout, done.stderr


def test_the_sitecustomize_that_it_hides_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.seen = __file__")

    assert run_python("import sys; print(sys.seen)", tmp_path).stdout.strip() == str(tmp_path / "sitecustomize.py")


def test_its_folder_may_be_on_the_path_twice() -> None:
    done = run_python(
        "import sys; print(sum(type(f).__name__ == 'TorchvisionSchemaFinder' for f in sys.meta_path))", SITE
    )
    assert (done.stdout.strip(), done.stderr) == ("1", "")


def test_a_hook_that_fails_is_reported_and_python_starts(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('broken elsewhere')")

    done = run_python("print('started')", tmp_path)

    assert done.stdout.strip() == "started"
    assert "broken elsewhere" in done.stderr


@pytest.mark.process
@pytest.mark.engine
def test_the_installed_torchvision_imports() -> None:
    for name in ("torch", "torchvision"):
        try:
            version(name)
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed")

    done = run_python("import torchvision.transforms.v2; print('imported')")

    assert done.stdout.strip() == "imported", done.stderr


def test_a_child_whose_parent_ended_before_it_was_ready_ends() -> None:
    child = "print('lives')  # multiprocessing.spawn"
    assert run_python(child, VLMTUI_PARENT_DEATH="1").stdout == "lives\n"
    # Who takes an orphan in is of another session than the engine's processes: here the child is.
    orphan = f"import os, sys; os.setsid(); os.execv(sys.executable, [sys.executable, '-c', {child!r}])"
    assert run_python(f"if not __import__('os').fork(): {orphan}\nimport os; os.wait()").stdout == "lives\n"
    alone = f"if not __import__('os').fork(): {orphan}\nimport os; print(os.wait()[1])"
    assert run_python(alone, VLMTUI_PARENT_DEATH="1").stdout == "256\n"
