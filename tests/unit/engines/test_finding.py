"""What an installation finds out before: uv's configuration, a PyTorch build, the GPU, the engine to use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vlmtui.engines import builds
from vlmtui.engines.builds import TORCH, VARIANTS, Hardware, find_hardware
from vlmtui.engines.installed import ADDED, EngineRecord, Engines, choose_engine
from vlmtui.engines.uv import PYTORCH_INDEX, Uv, uv_variables
from vlmtui.paths import Paths

PYTHON = Path(sys.executable)


def a_uv(folder: Path, *, offers: str) -> Uv:
    """A program in place of uv that has a package if its arguments contain `offers`."""
    program = folder / "uv"
    program.write_text(f'#!/bin/sh\ncase "$*" in *{offers}*) exit 0;; esac\nexit 1\n')
    program.chmod(0o755)
    return Uv(str(program), PYTHON, {"PATH": os.environ["PATH"]})


def test_the_cpu_build_of_pytorch_comes_from_the_first_index_that_has_it(
    tmp_path: Path,
) -> None:
    wanted = f"torch=={TORCH}+cpu"
    assert a_uv(tmp_path, offers=wanted).cpu_torch(TORCH) == (wanted,)
    assert a_uv(tmp_path, offers=PYTORCH_INDEX).cpu_torch(TORCH) == ("--index", PYTORCH_INDEX, wanted)
    assert a_uv(tmp_path, offers="nothing").cpu_torch(TORCH) == ()


def test_uv_gets_pips_configuration(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://a.example/simple\nextra-index-url =\n  https://b.example\n  file:///c\n"
    )
    given = {"PIP_CONFIG_FILE": str(file), "PIP_FIND_LINKS": "/w /v", "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    python = Path(getattr(sys, "_base_executable", sys.executable))
    said = uv_variables(python, given)
    assert said["UV_DEFAULT_INDEX"] == "https://a.example/simple"
    assert said["UV_INDEX"] == "https://b.example file:///c"
    assert said["UV_FIND_LINKS"] == "/w,/v"
    nothing = {"PIP_CONFIG_FILE": os.devnull, "HOME": str(tmp_path)}
    assert uv_variables(python, nothing)["UV_SYSTEM_CERTS"] == "1"
    assert uv_variables(python, {**nothing, "PIP_CERT": "/c.pem"})["SSL_CERT_FILE"] == "/c.pem"


@pytest.mark.parametrize(
    ("told", "variant", "text"),
    [
        ("NVIDIA H100, 580.65.06\nNVIDIA H100, 580.65.06\n", "cuda", "2 × NVIDIA H100, driver 580.65.06"),
        ("NVIDIA A100, 535.54.03\n", "cuda12", "NVIDIA A100, driver 535.54.03, too old for CUDA 13, which needs 580"),
        ("NVIDIA L4, 525.60.13\n", "cuda12", "NVIDIA L4, driver 525.60.13, too old for CUDA 13, which needs 580"),
        (
            "NVIDIA A10, 470.82.01\n",
            "cpu",
            "NVIDIA A10, driver 470.82.01, too old for CUDA 13, which needs 580; CUDA 12.9 needs 525",
        ),
        ("No devices were found\n", "cpu", "no NVIDIA GPU"),
    ],
)
def test_a_gpu_is_used_where_its_driver_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, variant: str, text: str
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{told}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = find_hardware()
    assert (found.variant, found.describe()) == (variant, text)


def record(engines: Engines, variant: str, installed_at: float) -> EngineRecord:
    """Write the record of an engine."""
    made = EngineRecord(
        name=f"vllm-1-{variant}", version="1.0", variant=variant, interpreter=sys.executable, installed_at=installed_at
    )
    engines.write(made)
    return made


def test_the_engine_that_fits_the_gpu_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    engines = Engines(Paths.below(tmp_path))
    assert choose_engine(engines) is None
    cuda, cpu = record(engines, "cuda", 1.0), record(engines, "cpu", 2.0)
    monkeypatch.setattr(builds, "find_hardware", lambda: Hardware(("H",), "580.1"))
    chosen = choose_engine(engines)
    assert chosen is not None and chosen.record == cuda
    monkeypatch.setattr(builds, "find_hardware", Hardware)
    chosen = choose_engine(engines)
    assert chosen is not None and chosen.record == cpu
    added = record(engines, ADDED, 3.0)
    chosen = choose_engine(engines)
    assert chosen is not None and chosen.record == added


def test_a_record_that_cannot_be_read_is_no_engine(tmp_path: Path) -> None:
    engines = Engines(Paths.below(tmp_path))
    made = record(engines, "cpu", 1.0)
    (engines.folder / made.name / "engine.json").write_bytes(b"\xff{")
    assert engines.all() == []
    assert engines.incomplete() == [made.name]


def test_the_set_up_of_a_checkout_needs_no_package() -> None:
    imports = "; ".join(f"import vlmtui.engines.{name}" for name in ("builds", "uv"))
    code = f"import sys; sys.path.insert(0, sys.argv[1]); {imports}"
    source = Path(builds.__file__).parents[2]
    subprocess.run([sys.executable, "-I", "-S", "-c", code, str(source)], check=True)


def test_every_lock_has_hashes_and_exact_versions() -> None:
    for variant in (VARIANTS["cpu"], VARIANTS["cuda"]):
        assert variant.lock is not None
        blocks = variant.lock.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()[1:]
        assert len(blocks) > 100
        assert all("==" in block and "--hash=sha256:" in block for block in blocks)
