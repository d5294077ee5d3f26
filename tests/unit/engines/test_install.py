"""Installing an engine: kills at each step, a second attempt, and errors."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.engines.light import environment, has_uv, install, light_variant, make_wheels, write_wheel
from vlmtui.engines import builds
from vlmtui.engines.builds import EngineBuild
from vlmtui.engines.installed import (
    Engines,
    add_engine,
    describe_interpreter,
    find_python,
    install_engine,
    unfit_for,
)
from vlmtui.engines.uv import installation_lock
from vlmtui.errors import VlmtuiError
from vlmtui.paths import Paths, private_dir

pytestmark = pytest.mark.process

STEPS = (
    "installed.uv_for",
    "Uv.install",
    "installed.describe_interpreter",
    "installed.EngineRecord",
    "Engines.write",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_wheels(tmp_path)
    return tmp_path


@pytest.fixture
def root_with_uv(root: Path) -> Path:
    if not has_uv(root):
        pytest.skip("uv is not installed here")
    return root


def engines_of(root: Path) -> Engines:
    return Engines(Paths.below(root / "app"))


def imports(interpreter: str) -> str:
    code = "import vllm, lightpkg; print(vllm.__version__, lightpkg.__version__)"
    return subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=True, cwd="/").stdout.strip()


@pytest.mark.parametrize("step", STEPS)
def test_after_a_kill_the_next_install_continues(root_with_uv: Path, step: str) -> None:
    root = root_with_uv
    name = light_variant(root).name
    killed = install(root, killed_at=step)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert engines_of(root).all() == []
    assert engines_of(root).incomplete() == [name]

    again = install(root)
    assert again.stdout.strip() == name, again.stderr
    [record] = engines_of(root).all()
    assert (record.version, record.variant, record.packages["lightpkg"]) == ("0.0.1", "light", "2.5")
    assert imports(record.interpreter) == "0.0.1 2.5"
    assert engines_of(root).incomplete() == []


def test_an_unfinished_environment_is_made_again(root_with_uv: Path) -> None:
    install(root_with_uv, killed_at="installed.describe_interpreter")
    [package] = (engines_of(root_with_uv).folder).glob("*/env/lib/python*/site-packages/lightpkg/__init__.py")
    package.unlink()
    install(root_with_uv)
    [record] = engines_of(root_with_uv).all()
    assert imports(record.interpreter) == "0.0.1 2.5"


def test_an_installed_engine_is_left_as_it_is(root_with_uv: Path) -> None:
    install(root_with_uv)
    [record] = engines_of(root_with_uv).all()
    assert install(root_with_uv).stdout.strip() == record.name
    assert engines_of(root_with_uv).all() == [record]


def test_without_uv_pip_fetches_it_and_a_failure_names_the_step(root: Path) -> None:
    failed = install(root, extra={"PATH": "/usr/bin:/bin"})  # the folder of wheels has no uv
    assert "VlmtuiError: python failed with exit code 1. Its message is above." in failed.stderr
    assert "No matching distribution found for uv" in failed.stderr
    assert engines_of(root).all() == []


def test_a_package_that_is_not_the_locked_one_is_refused(root_with_uv: Path) -> None:
    lock = root_with_uv / "light.txt"
    lock.write_text(lock.read_text(encoding="utf-8").replace("sha256:", "sha256:0")[:-2] + "\n", encoding="utf-8")
    done = install(root_with_uv)
    assert "VlmtuiError" in done.stderr
    assert engines_of(root_with_uv).all() == []


def test_a_removed_engine_leaves_nothing(root_with_uv: Path) -> None:
    install(root_with_uv)
    engines = engines_of(root_with_uv)
    engines.remove(engines.all()[0].name, print)
    assert list(engines.folder.iterdir()) == []
    with pytest.raises(VlmtuiError, match="Unknown engine"):
        engines.remove("vllm-9", print)


def test_an_engine_without_its_python_is_not_used(root_with_uv: Path) -> None:
    install(root_with_uv)
    engines = engines_of(root_with_uv)
    [record] = engines.all()
    Path(record.interpreter).unlink()
    assert engines.all() == []
    assert engines.incomplete() == [record.name]


def test_a_python_with_vllm_is_added_as_it_is(root_with_uv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(root_with_uv)
    engines = engines_of(root_with_uv)
    [made] = engines.all()
    monkeypatch.setattr("vlmtui.engines.installed._LIGHT", {"lightpkg": "lightpkg"})
    record = add_engine(engines, Path(made.interpreter))
    assert (record.interpreter, record.variant, record.search_path) == (made.interpreter, "added", ())
    assert record in engines.all()


def test_a_python_without_vllm_is_not_added(tmp_path: Path) -> None:
    with pytest.raises(VlmtuiError, match="does not run as a Python interpreter"):
        add_engine(engines_of(tmp_path), tmp_path / "python")
    assert describe_interpreter(find_python(light_variant(tmp_path))).python


def test_two_installations_at_once_wait_for_each_other(root_with_uv: Path) -> None:
    folder = engines_of(root_with_uv).folder / light_variant(root_with_uv).name
    folder.mkdir(parents=True)
    waits: list[int] = []
    with installation_lock(folder, lambda: None):
        assert is_locked(folder)
    with installation_lock(folder, lambda: waits.append(1)):
        assert waits == []


def test_a_removal_and_an_installation_that_wait_for_each_other_say_so_and_lock_one_folder(tmp_path: Path) -> None:
    engines = engines_of(tmp_path)
    folder = private_dir(engines.folder) / "vllm-1"
    waits: list[str] = []
    other_waits = threading.Event()

    def wait(text: str) -> None:
        waits.append(text)
        other_waits.set()

    def remove() -> None:
        engines.remove("vllm-1", wait)

    def install() -> bool:
        with installation_lock(folder, other_waits.set):
            return is_locked(folder)

    with ThreadPoolExecutor(2) as pool:
        with installation_lock(folder, lambda: None):
            removal = pool.submit(remove)
            assert other_waits.wait(60)
            other_waits.clear()
            installation = pool.submit(install)
            assert other_waits.wait(60)
        removal.result(60)
        has_locked = installation.result(60)
    assert waits == ["Waiting for an installation of this engine to finish."]
    assert has_locked, "and not a folder that is deleted already"


def is_locked(folder: Path) -> bool:
    command = ["flock", "--nonblock", "--conflict-exit-code", "9", str(folder), "true"]
    return subprocess.run(command, check=False).returncode == 9


def test_a_read_only_data_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "app"
    blocked.write_text("a file where a folder should be")
    with pytest.raises(VlmtuiError, match="create or use the folder") as caught:
        install_engine(Engines(Paths.below(blocked)), light_variant(tmp_path), print)
    assert "VLMTUI_DATA_DIR" in caught.value.hint


def test_a_missing_python_is_reported(tmp_path: Path) -> None:
    with pytest.raises(VlmtuiError, match="does not run as a Python interpreter"):
        find_python(light_variant(tmp_path), tmp_path / "python2")


def test_the_build_for_cuda_12_comes_from_its_own_index(root_with_uv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual index has the same version, as PyPI has."""
    indexes = {name: root_with_uv / name for name in ("usual", "cu129")}
    for name, version in (("usual", "0.0.1"), ("cu129", "0.0.1+cu129")):
        folder = indexes[name] / "vllm"
        folder.mkdir(parents=True)
        wheel = write_wheel(folder, "vllm", version)
        (folder / "index.html").write_text(f'<a href="{wheel.name.replace("+", "%2B")}">{wheel.name}</a>')
    monkeypatch.setattr(builds, "CUDA12_INDEXES", (indexes["cu129"].as_uri(),))
    for variable, value in environment(root_with_uv).items():
        monkeypatch.setenv(variable, value)
    for variable in ("UV_NO_INDEX", "UV_FIND_LINKS", "PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("UV_DEFAULT_INDEX", indexes["usual"].as_uri())
    record = install_engine(engines_of(root_with_uv), EngineBuild("cuda12", "0.0.1", 0.01), print)
    assert (record.variant, record.version) == ("cuda12", "0.0.1+cu129")


@pytest.mark.parametrize(
    ("libc", "flags", "free", "wrong"),
    [
        (("glibc", "2.27"), "sse avx avx2", 100e9, r"need glibc 2\.28, and this system has 2\.27"),
        (("glibc", "2.36"), "sse avx", 100e9, "needs a processor with AVX2"),
        (("glibc", "2.36"), "sse avx avx2", 3e9, r"up to 6\.8 GB, and .* has 3\.0 GB free"),
        (("glibc", "2.36"), "sse avx avx2", 100e9, ""),
        (("", ""), "sse avx avx2", 100e9, ""),
    ],
)
def test_a_machine_that_cannot_run_it_is_refused_before_anything_is_fetched(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    libc: tuple[str, str],
    flags: str,
    free: float,
    wrong: str,
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: {flags}\n")
    monkeypatch.setattr("platform.libc_ver", lambda: libc)
    monkeypatch.setattr("shutil.disk_usage", lambda path: shutil._ntuple_diskusage(int(200e9), 0, int(free)))
    found = unfit_for(builds.VARIANTS["cpu"], tmp_path / "engines", tmp_path / "cpuinfo")
    assert re.search(wrong, found[0]) if wrong and found else not found and not wrong
    if wrong.startswith("up to"):
        with pytest.raises(VlmtuiError, match="can't be installed here") as told:
            install_engine(Engines(Paths.below(tmp_path)), builds.VARIANTS["cpu"], print)
        assert "VLMTUI_DATA_DIR" in told.value.hint
        assert not (tmp_path / "data" / "engines").exists()
