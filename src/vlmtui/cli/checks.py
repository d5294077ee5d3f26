"""The checks of `vlmtui doctor` before it loads a model. Each takes a fraction of a second; none uses the network."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from vlmtui.cli.config import key_warnings
from vlmtui.config.settings import config_file, load_settings
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths, private_dir
from vlmtui.processes import find_program
from vlmtui.registry.hub_cache import hub_cache_folder
from vlmtui.ui.terminal.passage import has_true_colour, multiplexer_of
from vlmtui.ui.terminal.picture_ways import PictureWay

CheckStatus = Literal["ok", "warn", "fail"]
_GIB = 2**30
_MEMORY_WANTED_GIB = 4.0
_DISK_WANTED_GIB = 20.0


class Check(msgspec.Struct, frozen=True):
    """One line of the report."""

    name: str
    status: CheckStatus
    message: str
    hint: str = ""
    """What to do about it; empty if all is well."""
    error: ErrorKind | None = None
    """The kind of the error that made it fail."""
    table: tuple[PictureWay, ...] = ()
    """The ways of showing pictures, of that check."""


def machine_checks(paths: Paths) -> Iterator[Check]:
    """Run all checks except those that load a model."""
    from vlmtui.cli.engine_checks import engine_checks
    from vlmtui.cli.picture_check import check_pictures

    yield check_python()
    yield check_settings(paths)
    yield from engine_checks(paths)
    checks: tuple[Callable[[], Check], ...] = (
        check_gpus,
        check_memory,
        lambda: check_disk("data", paths.data, wanted_gib=1.0),
        lambda: check_disk("hub cache", hub_cache_folder(), wanted_gib=_DISK_WANTED_GIB),
        check_hub,
        check_terminal,
        check_pictures,
    )
    for check in checks:
        yield check()


def check_python() -> Check:
    return Check("python", "ok", f"{platform.python_version()} ({sys.executable})")


def check_terminal() -> Check:
    """Check the terminal by its environment variables."""
    environment = os.environ
    term = environment.get("TERM", "")
    facts = [f"TERM={term or 'not set'}", _colours(term)]
    if "SSH_CONNECTION" in environment:
        facts.append("over SSH")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return Check(
            "terminal", "ok", ", ".join([*facts, "not on a terminal now: `vlmtui ask` works, the app does not"])
        )
    if not term or term == "dumb":
        hint = "Set TERM to your terminal's type, for example xterm-256color."
        return Check("terminal", "warn", ", ".join(facts), hint)
    if "TMUX" in environment or term.startswith(("tmux", "screen")):
        facts.append("in tmux or screen")
    return Check("terminal", "ok", ", ".join(facts))


def check_settings(paths: Paths) -> Check:
    try:
        settings = load_settings(paths, os.environ)
    except VlmtuiError as error:
        return Check("settings", "fail", error.message, error.hint or "Correct it, or move the file away.", error.kind)
    if warnings := key_warnings(settings):
        return Check("settings", "warn", " ".join(warnings), f"Correct them in {config_file(paths)}.")
    return Check("settings", "ok", f"model {settings.model}, keep-alive {settings.keep_alive}, in {paths.config}")


def check_gpus() -> Check:
    names = _gpu_names()
    if names:
        return Check("gpu", "ok", "; ".join(names))
    if find_program("nvidia-smi"):
        hint = "Run `nvidia-smi`; the driver may be missing, or this container may have no access."
        return Check("gpu", "warn", "nvidia-smi is there, but no NVIDIA GPU can be reached", hint)
    return Check("gpu", "ok", "no GPU: models run on the CPU, which is practical for small ones only")


def check_memory() -> Check:
    memory = psutil.virtual_memory()
    available = memory.available / _GIB
    text = f"{available:.1f} of {memory.total / _GIB:.1f} GiB available, {os.cpu_count()} CPU cores"
    if available < _MEMORY_WANTED_GIB:
        hint = f"Even a small model needs about {_MEMORY_WANTED_GIB:g} GiB: close other programs."
        return Check("memory", "warn", text, hint)
    return Check("memory", "ok", text)


def check_disk(name: str, folder: Path, *, wanted_gib: float) -> Check:
    standing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(standing).free / _GIB
    text = f"{free:.1f} GiB free in {folder}"
    if name == "data":
        try:
            private_dir(folder)
        except VlmtuiError as error:
            return Check(name, "fail", error.message, error.hint, error.kind)
    if not os.access(standing, os.W_OK):
        return Check(name, "warn", f"{folder} is not writable", "Check its permissions.")
    if free < wanted_gib:
        return Check(name, "warn", text, "Large models need tens of GiB: free some, or move the cache with HF_HOME.")
    return Check(name, "ok", text)


def check_hub() -> Check:
    environment = os.environ
    models = len(list(hub_cache_folder().glob("models--*")))
    facts = [f"{models} model{'' if models == 1 else 's'} downloaded"]
    if environment.get("HF_ENDPOINT"):
        facts.append(f"endpoint {environment['HF_ENDPOINT']}")
    token = bool(environment.get("HF_TOKEN")) or (hub_cache_folder().parent / "token").is_file()
    facts.append("a token is set" if token else "no token (only gated models need one)")
    if environment.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return Check("hub", "ok", ", ".join(["offline mode: only downloaded models can be loaded", *facts]))
    return Check("hub", "ok", ", ".join(facts))


def _colours(term: str) -> str:
    if "NO_COLOR" in os.environ:
        return "no colour (NO_COLOR)"
    if has_true_colour(os.environ):
        return "true colour"
    if multiplexer_of(os.environ) == "screen":
        return "256 colours (screen passes on no more)"
    return "256 colours" if "256color" in term else "few colours"


def _gpu_names() -> list[str]:
    """Return every GPU with its memory; [] if NVML does not work."""
    if importlib.util.find_spec("pynvml") is None:
        return []
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        found = []
        for number in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
            name = pynvml.nvmlDeviceGetName(handle)
            found.append(f"{name}, {memory.free / _GIB:.1f} of {memory.total / _GIB:.1f} GiB free, driver {driver}")
        return found
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()
