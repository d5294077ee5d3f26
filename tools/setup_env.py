#!/usr/bin/env python3
"""Set up `.venv` with everything that vlmtui needs: `python3 tools/setup_env.py`.

No configuration is needed. With an NVIDIA GPU whose driver is new enough, vLLM's CUDA build is installed; otherwise its
CPU build, with a CPU build of PyTorch if pip's or uv's configuration or PyTorch's own index offers one, else with
PyPI's. `VLMTUI_VARIANT=cpu` or `cuda` chooses a build; the choice is kept until you choose the other.

If `.venv` is complete, nothing is done. An interrupted set-up starts again with the cached downloads. Exit code: 0 when
`.venv` is ready, 1 when a step failed, 130 when interrupted.

This file runs with Pythons that are too old for vlmtui itself (3.7 and later), to find a newer one or to report that
there is none.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STATE = VENV / "vlmtui-setup"
"""A file with the variant and, after a complete installation, its fingerprint."""
DEVELOPMENT = ROOT / "requirements" / "dev.txt"

OLDEST, NEWEST = (3, 11), (3, 14)
PYTHONS = ("python3.13", "python3.12", "python3.11", "python3.14")


def fingerprint(variant: str) -> str:
    """Return a hash of everything that determines the content of `.venv`; empty if its Python is missing."""
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
    """Return `cpu` or `cuda`: VLMTUI_VARIANT, else the installed variant, else what fits this machine; prints why it
    fits."""
    from vlmtui.engines.builds import VARIANTS, find_hardware

    named = os.environ.get("VLMTUI_VARIANT", "").strip().lower()
    locked = [name for name, build in VARIANTS.items() if build.lock is not None]
    if named and named not in locked:
        raise failed(f"VLMTUI_VARIANT is {named!r}.", "Set it to cpu or cuda, or leave it out.")
    if named or kept in locked:
        return named or kept
    hardware = find_hardware()
    variant = hardware.variant if hardware.variant in locked else "cpu"
    print(f"Found: {hardware.describe()}. Taking {VARIANTS[variant].title}.", flush=True)
    return variant


def failed(message: str, hint: str) -> Exception:
    from vlmtui.errors import ErrorKind, VlmtuiError

    return VlmtuiError(ErrorKind.INSTALL_FAILED, message, hint=hint)


def set_up(variant: str) -> None:
    """Create `.venv`, or continue with an existing one if it works and has the same variant."""
    from vlmtui.engines.builds import VARIANTS
    from vlmtui.engines.uv import uv_for

    build = VARIANTS[variant]
    kept, was_finished = state()
    is_kept = kept == variant and bool(was_finished) and PYTHON.exists()
    uv = uv_for(VENV, Path(getattr(sys, "_base_executable", sys.executable)), is_kept=is_kept)
    STATE.write_text(variant, encoding="utf-8")
    print(f"Installing {build.title} and every other package (up to {build.disk_gb:g} GB).", flush=True)
    assert build.lock is not None
    uv.install_locked(build.lock, build.torch, build.torch_lock, "-r", str(DEVELOPMENT))
    uv.install("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    STATE.write_text(f"{variant} {fingerprint(variant)}", encoding="utf-8")
    print("The environment is ready: .venv", flush=True)


def state() -> tuple[str, str]:
    """Return the variant of `.venv`, and the fingerprint of its content; empty if it is not complete."""
    words = STATE.read_text(encoding="utf-8").split() if STATE.exists() else []
    return (words[0] if words else "", words[1] if len(words) > 1 else "")


def is_finished() -> bool:
    """Return True if `.venv` is complete and matches this checkout."""
    variant, found = state()
    named = os.environ.get("VLMTUI_VARIANT", "").strip().lower()
    return bool(found) and named in ("", variant) and found == fingerprint(variant)


def main() -> int:
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        for name in PYTHONS:
            found = shutil.which(name)
            if found and subprocess.call([found, "-c", ""], stderr=subprocess.DEVNULL) == 0:
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
    """Set up `.venv` if it is not complete. Raises VlmtuiError, OSError and KeyboardInterrupt."""
    from vlmtui.engines.uv import installation_lock

    if is_finished():
        return 0
    if not sys.platform.startswith("linux"):
        raise failed(
            "The set-up needs Linux: there are no wheels of vLLM for other systems.",
            "`pipx install .` gives the app alone; `vlmtui engines add` names a vLLM that you built yourself.",
        )
    with installation_lock(ROOT, lambda: print("Waiting for another set-up of this folder to finish.", flush=True)):
        if not is_finished():
            set_up(wanted_variant(state()[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
