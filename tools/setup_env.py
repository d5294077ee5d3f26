#!/usr/bin/env python3
"""Set up `.venv` with everything that vlmtui needs: `python3 tools/setup_env.py`.

Which vLLM is installed: its CUDA build where an NVIDIA GPU is present, else its CPU build. `VLMTUI_VARIANT=cpu` or
`cuda` chooses one, and the choice is kept until you name the other. `TORCH_INDEX` is an extra package index for
PyTorch's CPU builds. Everything else is left to pip's own configuration.

A finished set-up is recognised at once and nothing is done; an interrupted one is taken up again. What pip says goes to
`.venv/setup.log`. Exit code: 0 when `.venv` is ready, 1 when a step failed, 130 when interrupted.

This file runs under Pythons that are too old for vlmtui itself (3.7 and later), to say so in clear words.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STATE = VENV / "vlmtui-setup.json"
LOG = VENV / "setup.log"
LOCK = ROOT / "requirements" / "cpu.txt"

OLDEST, NEWEST = (3, 11), (3, 14)
PYTHONS = ("python3.12", "python3.13", "python3.11", "python3.14")
"""Where to look when `python3` itself will not do; the ones that most packages have wheels for come first."""
DISK_GB = {"cpu": 8, "cuda": 20}
"""Free space that a fresh set-up needs while it runs; about half of it is in use afterwards."""
HEARTBEAT_SECONDS = 30
LOG_LINES = 12
"""How much of the log is shown when a step fails."""

ADVICE = (
    (
        r"No space left on device|Errno 28",
        "The disk is full. Free some space here or in pip's temporary folder (TMPDIR names another one).",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError",
        "The package index's certificate is not trusted here. PIP_CERT names a file with your network's certificates.",
    ),
    (
        r"after connection broken|Max retries|NewConnectionError|ProxyError|name resolution|ConnectTimeout|ReadTimeout",
        "The package index cannot be reached. Check the network, HTTPS_PROXY, and pip's settings (`pip config list`).",
    ),
    (
        r"No matching distribution found for torch\b",
        "No index that pip knows offers this torch. Set TORCH_INDEX to the address of PyTorch's CPU wheel index"
        " (PyTorch's install page shows it) and look at pip's settings (`pip config list`).",
    ),
    (
        r"No matching distribution found",
        "No index that pip knows offers this package for this Python. Look at pip's settings (`pip config list`).",
    ),
)
"""What to look for in pip's output, most telling first, and what to tell the user then."""


class SetupError(Exception):
    """A set-up that cannot go on: what is wrong, and lines that say what to do."""

    def __init__(self, message: str, *advice: str) -> None:
        super().__init__(message)
        self.advice = advice


class Steps:
    """Names every step on stdout as it begins, with its number, and says how long a slow one took."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.number = 0
        self.name = ""

    def begin(self, name: str) -> None:
        self.number += 1
        self.name = name
        print(f"[{self.number}/{self.total}] {name}", flush=True)

    def pip(self, *arguments: str) -> None:
        """Run the environment's pip, its output in the log. Raises SetupError with the log's end when it fails."""
        command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
        started = time.monotonic()
        with LOG.open("ab") as log:
            log.write(f"\n== {self.name}\n".encode())
            log.flush()
            begin = log.tell()
            process = subprocess.Popen(command, cwd=str(ROOT), stdout=log, stderr=subprocess.STDOUT)
            try:
                code = self._wait(process, started)
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
        if code != 0:
            raise pip_failure(code, LOG.read_bytes()[begin:].decode("utf-8", "replace"))
        if time.monotonic() - started > 1:
            print(f"      done in {time.monotonic() - started:.0f} s", flush=True)

    def _wait(self, process: subprocess.Popen[bytes], started: float) -> int:
        while True:
            try:
                return process.wait(timeout=HEARTBEAT_SECONDS)
            except subprocess.TimeoutExpired:
                print(f"      … at it for {time.monotonic() - started:.0f} s", flush=True)


def pip_failure(code: int, output: str) -> SetupError:
    """The error for a pip that exited with `code` after writing `output`: the end of it, and the likeliest remedy."""
    lines = [line for line in output.splitlines() if line.strip()][-LOG_LINES:]
    remedy = next((text for pattern, text in ADVICE if re.search(pattern, output)), "The log tells more.")
    return SetupError(
        f"pip ended with exit code {code}. The end of {LOG.relative_to(ROOT)}:",
        *(f"  | {line}" for line in lines),
        remedy,
    )


def read_state() -> dict[str, str]:
    """What the last set-up left: `variant`, and `done`, the fingerprint of a finished one. Empty when there is none."""
    try:
        found = json.loads(STATE.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_state(variant: str, done: str) -> None:
    STATE.write_text(json.dumps({"variant": variant, "done": done}) + "\n", encoding="utf-8")


def fingerprint(variant: str) -> str:
    """A hash of all that decides what is in `.venv`; empty when the environment's Python is missing."""
    if not PYTHON.exists():
        return ""
    digest = hashlib.sha256()
    for part in (variant, str(ROOT), os.path.realpath(str(PYTHON))):
        digest.update(part.encode() + b"\0")
    for path in (LOCK, ROOT / "pyproject.toml", VENV / "pyvenv.cfg"):
        digest.update((path.read_bytes() if path.exists() else b"") + b"\0")
    return digest.hexdigest()


def wanted_variant(kept: str | None) -> str:
    """`cpu` or `cuda`: what VLMTUI_VARIANT says, else what is installed already, else what fits this machine."""
    named = os.environ.get("VLMTUI_VARIANT", "").strip().lower()
    if named and named not in DISK_GB:
        raise SetupError(f"VLMTUI_VARIANT is {named!r}.", "Set it to cpu or cuda, or leave it out.")
    if named or kept in DISK_GB:
        return named or str(kept)
    return "cuda" if has_nvidia_gpu() else "cpu"


def has_nvidia_gpu() -> bool:
    """Whether `nvidia-smi` lists a GPU, or a GPU's device and the CUDA driver library are there without it."""
    if shutil.which("nvidia-smi"):
        try:
            listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return listed.returncode == 0 and b"GPU" in listed.stdout
    from ctypes.util import find_library

    return Path("/dev/nvidia0").exists() and find_library("cuda") is not None


def find_python() -> str:
    """An interpreter that vlmtui runs on and that can make environments. Raises SetupError when there is none."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        found = sys.executable
    else:
        found = next((name for name in PYTHONS if shutil.which(name) and succeeds(name, "-c", "pass")), "")
    if not found:
        have = ".".join(map(str, sys.version_info[:2]))
        raise SetupError(
            f"vlmtui needs Python 3.11 to 3.14; python3 is {have}, and no python3.11 to python3.14 is installed.",
            "Install one: on Debian 12 and Ubuntu 24.04 or later `sudo apt install python3 python3-venv`;",
            "elsewhere pyenv, conda or uv bring one.",
        )
    if not succeeds(found, "-c", "import venv, ensurepip"):
        raise SetupError(
            f"{found} cannot make virtual environments: its modules venv and ensurepip are missing.",
            "On Debian and Ubuntu: `sudo apt install python3-venv` (or python3.12-venv, for that very version).",
        )
    return found


def succeeds(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=120, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def check_disk(variant: str) -> None:
    """Raises SetupError when a fresh set-up would fill the disk; one that was interrupted later on may go on."""
    if any(VENV.glob("lib/python*/site-packages/vllm")):
        return
    free = shutil.disk_usage(str(ROOT)).free / 1e9
    if free < DISK_GB[variant]:
        raise SetupError(
            f"{free:.1f} GB are free on the disk of {ROOT}; the {variant} set-up needs {DISK_GB[variant]} GB.",
            "Free some space, or move the folder to another disk.",
        )


def make_venv(variant: str) -> None:
    """Make `.venv`, or keep the one that is there if it works and was begun for the same variant."""
    same = read_state().get("variant", variant) == variant
    if same and succeeds(str(PYTHON), "-c", f"import pip, sys; sys.exit(sys.version_info < {OLDEST})"):
        forget_half_installed()
        return
    command = [find_python(), "-m", "venv", "--clear", str(VENV)]
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if made.returncode != 0:
        lines = made.stdout.decode("utf-8", "replace").splitlines()[-LOG_LINES:]
        raise SetupError(f"`{' '.join(command)}` failed:", *(f"  | {line}" for line in lines))


def forget_half_installed() -> None:
    """Have pip install again what it was writing when it was killed: INSTALLER is the first file it adds at the end."""
    for record in VENV.glob("lib/python*/site-packages/*.dist-info"):
        if not (record / "INSTALLER").exists():
            shutil.rmtree(str(record))


def check_torch() -> None:
    """Raises SetupError, and removes it, when the installed torch is a CUDA build: vLLM's CPU build cannot use that."""
    for path in VENV.glob("lib/python*/site-packages/torch/version.py"):
        cuda = re.search(r"^cuda\b.*=\s*['\"]([^'\"]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if cuda:
            succeeds(str(PYTHON), "-m", "pip", "uninstall", "--yes", "torch")
            raise SetupError(
                f"pip found only a CUDA build of torch (for CUDA {cuda[1]}); the cpu set-up needs a CPU build.",
                "Set TORCH_INDEX to the address of PyTorch's CPU wheel index (PyTorch's install page shows it when you",
                "choose CPU) and run the same command again. With an NVIDIA GPU, set VLMTUI_VARIANT=cuda instead.",
            )


def locked_torch() -> str:
    """The lock's line for torch, as `torch==2.13.0`."""
    found = re.search(r"^torch==\S+", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise SetupError(f"{LOCK.relative_to(ROOT)} does not pin torch.")
    return found[0]


def install_cpu(steps: Steps) -> None:
    index = os.environ.get("TORCH_INDEX", "").strip()
    extra = ["--extra-index-url", index] if index else []
    steps.begin("Install PyTorch's CPU build")
    steps.pip("install", "--no-deps", *extra, locked_torch())
    check_torch()
    steps.begin("Install vLLM's CPU build and every other package (some minutes, 3.5 GB)")
    steps.pip("install", "--no-deps", *extra, "-r", str(LOCK))
    steps.begin("Install vlmtui itself")
    steps.pip("install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT))


def install_cuda(steps: Steps) -> None:
    steps.begin("Install vlmtui, vLLM's CUDA build and every other package (some minutes, 10 GB)")
    steps.pip("install", "--editable", f"{ROOT}[cuda,dev]")


def set_up(variant: str) -> None:
    """Bring `.venv` to its finished state, step by step."""
    steps = Steps(5 if variant == "cpu" else 3)
    try:
        steps.begin(f"Check the disk for the {variant} set-up")
        check_disk(variant)
        steps.begin("Make the virtual environment .venv")
        make_venv(variant)
        write_state(variant, done="")
        LOG.write_text("", encoding="utf-8")
        if variant == "cpu":
            install_cpu(steps)
        else:
            install_cuda(steps)
    except SetupError as error:
        raise SetupError(
            f"Step {steps.number} of {steps.total} failed ({steps.name}): {error}", *error.advice
        ) from error
    write_state(variant, done=fingerprint(variant))
    print("The environment is ready: .venv", flush=True)


def wait_for_turn() -> None:
    """Let one set-up at a time run in this folder; the lock goes with the process."""
    import fcntl

    folder = os.open(str(ROOT), os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("Another set-up is running in this folder; waiting for it.", flush=True)
        fcntl.flock(folder, fcntl.LOCK_EX)


def is_finished() -> bool:
    """Whether `.venv` is what this checkout wants, and complete."""
    state = read_state()
    return bool(state.get("done")) and state["done"] == fingerprint(wanted_variant(state.get("variant")))


def interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    try:
        if is_finished():
            return 0
        if os.name != "posix":
            raise SetupError("vlmtui runs on Linux and macOS.", "On Windows, use it in WSL.")
        signal.signal(signal.SIGTERM, interrupt)
        wait_for_turn()
        if not is_finished():
            set_up(wanted_variant(read_state().get("variant")))
    except SetupError as error:
        print("", f"Set-up: {error}", *error.advice, sep="\n", file=sys.stderr)
        return 1
    except OSError as error:
        print(
            "",
            f"Set-up: {error}",
            "Check the permissions and the free space of this folder.",
            sep="\n",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("\nSet-up interrupted. Run the same command again to go on.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
