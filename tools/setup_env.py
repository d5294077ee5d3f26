#!/usr/bin/env python3
"""Set up `.venv` with everything that vlmtui needs: `python3 tools/setup_env.py`.

Nothing has to be set. Where an NVIDIA GPU is present whose driver is new enough, vLLM's CUDA build is installed, else
its CPU build, with a CPU build of PyTorch where pip's or uv's configuration offers one or PyTorch's own index answers,
else with PyPI's. `VLMTUI_VARIANT=cpu` or `cuda` chooses one, and the choice is kept until you name the other;
`TORCH_INDEX` may name another index of CPU builds.

A finished set-up is recognised at once and nothing is done; an interrupted one is taken up again: what was downloaded
stays. What the installer says goes to `.venv/setup.log`. Exit code: 0 when `.venv` is ready, 1 when a step failed, 130
when interrupted.

This file starts under Pythons that are too old for vlmtui itself (3.7 and later), to find a newer one or to say so.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vlmtui.engines.packages import Installer, InstallStep, OnInstallStep
    from vlmtui.engines.torch_build import TorchBuild

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOG = VENV / "setup.log"
DEVELOPMENT = ROOT / "requirements" / "dev.txt"

OLDEST, NEWEST = (3, 11), (3, 14)
PYTHONS = ("python3.13", "python3.12", "python3.11", "python3.14")
HEARTBEAT_SECONDS = 30


class Steps:
    """Print every step as it begins, and its progress: on a terminal in one line, else as a line now and then."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.number = 0
        self.started = time.monotonic()
        self.told = self.started
        self.is_tty = sys.stdout.isatty()

    def begin(self, name: str) -> None:
        self.end()
        self.number += 1
        self.started = self.told = time.monotonic()
        print(f"[{self.number}/{self.total}] {name}", flush=True)

    def end(self) -> None:
        took = time.monotonic() - self.started
        if self.number:
            clear = "\r\x1b[K" if self.is_tty else ""
            print(f"{clear}      done in {took:.0f} s" if took > 1 else clear, end="\n" if took > 1 else "", flush=True)

    def report(self, progress: InstallStep) -> None:
        now = time.monotonic()
        share = "" if progress.fraction is None else f"{progress.fraction:.0%} "
        text = f"      {share}{progress.detail or progress.stage} · {now - self.started:.0f} s"
        if self.is_tty:
            print(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)
        elif now - self.told >= HEARTBEAT_SECONDS:
            self.told = now
            print(text, flush=True)


def fingerprint(variant: str) -> str:
    """Return a hash of all that decides what is in `.venv`; empty if the environment's Python is missing."""
    if not PYTHON.exists():
        return ""
    digest = hashlib.sha256()
    for part in (variant, str(ROOT), os.path.realpath(str(PYTHON))):
        digest.update(part.encode() + b"\0")
    locks = sorted((ROOT / "src" / "vlmtui" / "engines" / "locks").glob("*.txt"))
    for path in (*locks, DEVELOPMENT, ROOT / "pyproject.toml", VENV / "pyvenv.cfg"):
        digest.update((path.read_bytes() if path.exists() else b"") + b"\0")
    return digest.hexdigest()


def wanted_variant(kept: str) -> str:
    """`cpu` or `cuda`: what VLMTUI_VARIANT says, else what is installed already, else what fits; says why the last."""
    from vlmtui.engines.hardware import find_hardware
    from vlmtui.engines.variants import VARIANTS

    named = os.environ.get("VLMTUI_VARIANT", "").strip().lower()
    if named and named not in VARIANTS:
        raise failed(f"VLMTUI_VARIANT is {named!r}.", "Set it to cpu or cuda, or leave it out.")
    if named or kept in VARIANTS:
        return named or kept
    hardware = find_hardware()
    print(f"Found: {hardware.describe()}. Taking {VARIANTS[hardware.variant].title}.", flush=True)
    return hardware.variant


def failed(message: str, hint: str) -> Exception:
    from vlmtui.errors import ErrorKind, VlmtuiError

    return VlmtuiError(ErrorKind.INSTALL_FAILED, message, hint=hint)


def make_venv(variant: str) -> None:
    """Make `.venv`, or keep the one that is there if it is whole, works and is of the same variant."""
    from vlmtui.engines import environment

    state = environment.read_state(VENV)
    if state.phase is environment.SetupPhase.READY and state.variant == variant and environment.works(VENV):
        return
    environment.make_environment(VENV, environment.find_python())


def choose_torch(installer: Installer, variant: str) -> TorchBuild | None:
    """Choose PyTorch's build for the CPU variant and print it; None if the variant's lock names it."""
    from vlmtui.engines.torch_build import find_torch
    from vlmtui.engines.variants import VARIANTS

    if variant != "cpu":
        return None
    found = find_torch(list(installer.uv), PYTHON, installer.environment)
    small, large = VARIANTS[variant].disk_gb, VARIANTS[variant].disk_gb_without_cpu_torch
    if found.is_cpu:
        print(f"      PyTorch's CPU build, from {found.origin}: {small} GB in all.", flush=True)
    else:
        print(
            f"      No CPU build of PyTorch here: taking PyPI's, which works too ({large} instead of {small} GB).",
            flush=True,
        )
    return found


def set_up(variant: str) -> None:
    """Bring `.venv` to its finished state, step by step."""
    from vlmtui.engines.environment import SetupPhase, SetupState, require_disk_space, write_state
    from vlmtui.engines.packages import prepare_installer
    from vlmtui.engines.variants import VARIANTS

    steps = Steps(4)
    wanted = VARIANTS[variant]
    steps.begin("Make the virtual environment .venv")
    if not any(VENV.glob("lib/python*/site-packages/vllm")):
        require_disk_space(ROOT, wanted.needed_gb, f"the {variant} set-up")
    make_venv(variant)
    write_state(VENV, SetupState(SetupPhase.INSTALLING, variant))
    LOG.write_text("", encoding="utf-8")
    steps.begin("Look for the installer, and for a build of PyTorch")
    installer = prepare_installer(VENV, PYTHON, LOG, steps.report)
    torch = choose_torch(installer, variant)
    disk_gb = wanted.disk_gb if torch is None or torch.is_cpu else wanted.disk_gb_without_cpu_torch
    steps.begin(f"Install {wanted.title} and every other package, with {installer.name} ({disk_gb} GB)")
    locks = [wanted.lock, DEVELOPMENT, *([torch.lock] if torch and torch.lock else [])]
    requirement = torch.requirement if torch else ""
    installer.install(locks, requirement, expected_gb=disk_gb, stage="installing", report=steps.report)
    steps.begin("Install vlmtui itself")
    install_itself(installer, steps.report)
    steps.end()
    write_state(VENV, SetupState(SetupPhase.READY, variant, fingerprint(variant)))
    print("The environment is ready: .venv", flush=True)


def install_itself(installer: Installer, report: OnInstallStep) -> None:
    """Install this checkout into `.venv` as an editable package."""
    program = [*installer.uv, "pip"] if installer.uv else [str(PYTHON), "-m", "pip"]
    where = ["--python", str(PYTHON)] if installer.uv else []
    command = [*program, "install", *where, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
    installer.run(command, stage="vlmtui itself", expected_gb=0, report=report)


def is_finished() -> bool:
    """Return whether `.venv` is complete and matches this checkout."""
    from vlmtui.engines.environment import SetupPhase, read_state

    state = read_state(VENV)
    named = os.environ.get("VLMTUI_VARIANT", "").strip().lower()
    return (
        state.phase is SetupPhase.READY
        and named in ("", state.variant)
        and bool(state.fingerprint)
        and state.fingerprint == fingerprint(state.variant)
    )


def newer_python() -> str:
    """Return an interpreter of this machine that vlmtui runs on; empty if there is none."""
    for name in PYTHONS:
        found = shutil.which(name)
        if found and subprocess.call([found, "-c", "pass"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
            return found
    return ""


def interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        found = newer_python()
        if found:
            return subprocess.call([found, str(Path(__file__).resolve()), *sys.argv[1:]])
        have = ".".join(map(str, sys.version_info[:2]))
        print(
            f"\nSet-up: vlmtui needs Python 3.11 to 3.14; python3 is {have}, and none of those is installed.",
            "Install one: on Debian 12 and Ubuntu 24.04 or later `sudo apt install python3 python3-venv`;",
            "elsewhere use pyenv, conda or uv.",
            sep="\n",
            file=sys.stderr,
        )
        return 1
    sys.path.insert(0, str(ROOT / "src"))
    from vlmtui.errors import VlmtuiError

    try:
        return prepare()
    except VlmtuiError as error:
        detail = "".join(f"  | {line}\n" for line in error.detail.splitlines())
        print(f"\nSet-up: {error.message}\n{detail}{error.hint}", file=sys.stderr)
    except OSError as error:
        print(f"\nSet-up: {error}\nCheck the permissions and the free space of this folder.", file=sys.stderr)
    except KeyboardInterrupt:
        print("\nSet-up interrupted. Run the same command again to continue.", file=sys.stderr)
        return 130
    return 1


def prepare() -> int:
    """Set up `.venv` unless it is finished. Raises VlmtuiError, OSError and KeyboardInterrupt."""
    from vlmtui.engines.environment import installation_lock, read_state

    if is_finished():
        return 0
    if not sys.platform.startswith("linux"):
        raise failed(
            "The set-up needs Linux: there are no wheels of vLLM for other systems.",
            "`pipx install vlmtui` gives the app alone; `vlmtui engines add` names a vLLM that you built yourself.",
        )
    signal.signal(signal.SIGTERM, interrupt)
    with installation_lock(ROOT, lambda: print("Waiting for another set-up of this folder to finish.", flush=True)):
        if not is_finished():
            set_up(wanted_variant(read_state(VENV).variant))
    return 0


if __name__ == "__main__":
    sys.exit(main())
