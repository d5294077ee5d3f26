"""The report of `vlmtui doctor --report`: facts about this machine that may be published.

Nothing is copied into it and then cleaned. Every field is a number, a flag, or a text that matches a list or a pattern
of what is public, such as a version; everything else becomes "other" or "set". So no path, user, host, key, address,
prompt or message of an error can get in.
"""

from __future__ import annotations

import builtins
import importlib.metadata
import os
import platform
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

import vlmtui
from vlmtui.cli.doctor import Check
from vlmtui.config.settings import Settings, load_settings, setting_names, sources
from vlmtui.engines.hardware import find_hardware
from vlmtui.engines.records import Engines, choose_engine
from vlmtui.errors import VlmtuiError
from vlmtui.paths import Paths
from vlmtui.reading import read_tail
from vlmtui.registry.hub_cache import hub_cache_folder
from vlmtui.registry.loader import bundled_tables
from vlmtui.terminal import best_way, has_true_colour

OTHER = "other"
_GIB = 2**30
_VERSION = re.compile(r"\d{1,4}(?:\.\d{1,6}){0,4}(?:(?:a|b|rc|\.post|\.dev)\d{1,6}){0,3}")
_BUILD = re.compile(r"cpu|cu\d{2,3}|rocm\d[\d.]{0,8}")
_PACKAGES = (
    "textual", "textual-image", "pillow", "pillow-heif", "av", "numpy", "msgspec", "httpx2", "torch", "transformers",
)  # fmt: skip
_TERMS = (
    "xterm", "xterm-256color", "xterm-kitty", "xterm-ghostty", "tmux", "tmux-256color", "screen", "screen-256color",
    "foot", "alacritty", "wezterm", "mlterm", "contour", "linux", "vt100", "vt220", "rxvt-unicode-256color",
    "st-256color", "konsole-256color", "dumb",
)  # fmt: skip
_PROGRAMS = ("apple_terminal", "ghostty", "hyper", "iterm.app", "tmux", "vscode", "warpterminal", "wezterm")
_MACHINES = ("x86_64", "aarch64", "arm64", "ppc64le", "riscv64", "s390x")
_GPU = re.compile(
    r"(?:(?:NVIDIA|Tesla|Quadro|GeForce|RTX|GTX|TITAN|Graphics|Pro|PRO|Ti|SUPER|Laptop|Ada|GPU|"
    r"Generation|Blackwell|Server|Edition|Workstation|Max|Q|PCIe|PCIE|SXM\d?|HBM\d[a-z]?|NVL|\d{1,3}GB|"
    r"[A-Z]{0,3}\d{1,4}[A-Za-z]{0,2})[ -]){1,12}"
)
"""Words of GPUs' names. A driver may call one otherwise."""
_LOG_BYTES = 200_000
_CRASHES_MAX = 3
_FRAME = re.compile(r'^ *File ".*[/\\]vlmtui[/\\]([\w/\\]+\.py)", line (\d{1,6})')


def make_report(paths: Paths, checks: Sequence[Check], environment: Mapping[str, str]) -> dict[str, object]:
    """Return the facts, sizes in GiB. Takes about a second; loads no model, and uses no network."""
    hardware = find_hardware()
    memory = psutil.virtual_memory()
    return {
        "vlmtui": vlmtui.__version__,
        "python": version_text(platform.python_version()),
        "system": _system(),
        "packages": {name: _installed(name) for name in _PACKAGES},
        "terminal": _terminal(environment, checks),
        "settings": _settings(paths, environment),
        "engines": _engines(paths),
        "gpus": [_gpu(name) for name in hardware.gpus],
        "driver": version_text(hardware.driver) if hardware.driver else "",
        "memory": {
            "total": round(memory.total / _GIB, 1),
            "available": round(memory.available / _GIB, 1),
            "cores": os.cpu_count() or 0,
        },
        "hub": {
            "own_endpoint": bool(environment.get("HF_ENDPOINT")),
            "token": bool(environment.get("HF_TOKEN")) or (hub_cache_folder().parent / "token").is_file(),
            "offline": environment.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"),
        },
        "checks": {check.name: f"{check.status} ({check.error})" if check.error else check.status for check in checks},
        "crashes": [crash for log in ("app.log", "cli.log") for crash in _crashes(paths.logs / log)],
    }


def as_text(report: Mapping[str, object]) -> str:
    """Return the report as a fenced block of Markdown."""
    rows = [(name, line) for name, value in report.items() for line in _lines(value)]
    width = max(len(name) for name, _ in rows)
    return "\n".join(["```text", *(f"{name:<{width}}  {line}" for name, line in rows), "```"])


def _lines(value: object) -> list[str]:
    """Return a field's value, a line for each item of a list."""
    if isinstance(value, list):
        return [line for item in value for line in _lines(item)] or ["none"]
    if isinstance(value, dict):
        return [", ".join(f"{name} {_word(inner)}" for name, inner in value.items()) or "none"]
    return [_word(value)]


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "unknown" if value in (None, "") else str(value)


def among(text: str, known: Sequence[str]) -> str:
    """Return the text if it is one of `known`, else "other"; "none" if it is empty."""
    if not text:
        return "none"
    return text if text in known else OTHER


def version_text(text: str) -> str:
    """Return a version without what somebody may have added to it: `0.32.0+cpu`, but `0.32.0+other`."""
    public, plus, local = text.partition("+")
    found = _VERSION.match(public)
    if found is None:
        return OTHER
    shown = found[0] if found[0] == public else f"{found[0]} (and more)"
    return shown + (f"+{local if _BUILD.fullmatch(local) else OTHER}" if plus else "")


def _gpu(name: str) -> str:
    return name if _GPU.fullmatch(f"{name} ") else f"{OTHER} GPU"


def _system() -> dict[str, str]:
    library, version = platform.libc_ver()
    return {
        "kernel": f"{among(platform.system(), ('Linux', 'Darwin'))} {version_text(platform.release())}",
        "machine": among(platform.machine(), _MACHINES),
        "libc": f"{library} {version_text(version)}" if library == "glibc" else among(library, ("musl",)),
    }


def _installed(name: str) -> str:
    try:
        return version_text(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _terminal(environment: Mapping[str, str], checks: Sequence[Check]) -> dict[str, str | bool]:
    best = next((best_way(list(check.table)) for check in checks if check.table), None)
    size = shutil.get_terminal_size()
    return {
        "TERM": among(environment.get("TERM", ""), _TERMS),
        "program": among(environment.get("TERM_PROGRAM", "").lower(), _PROGRAMS),
        "graphics": best.name if best is not None else "off",
        "size": f"{size.columns}x{size.lines}",
        "true_colour": has_true_colour(environment),
        "no_colour": "NO_COLOR" in environment,
        "tmux": "TMUX" in environment,
        "ssh": "SSH_CONNECTION" in environment,
    }


def _settings(paths: Paths, environment: Mapping[str, str]) -> dict[str, str]:
    try:
        settings, origins = load_settings(paths, environment), sources(paths, environment)
    except VlmtuiError:
        return {"all": "invalid"}
    told = {}
    for name in setting_names():
        if name in origins:
            where = "environment" if origins[name].isupper() else "file"
            told[name] = f"{_public(settings, name)} ({where})"
    return told


def _public(settings: Settings, name: str) -> str:
    """Return a setting's value where it is a number, a duration or one of a few words, else that it is set."""
    value: object = settings
    for part in name.split("."):
        value = getattr(value, part)
    if name == "model":
        return among(str(value), [str(family) for family in bundled_tables()])
    if isinstance(value, int | float) or name in ("graphics", "keep_alive", "keep_deleted"):
        return str(value)
    return f"{len(value)} set" if isinstance(value, dict) else "set"


def _engines(paths: Paths) -> list[str]:
    """Return each engine: `cuda 0.32.0, torch 2.13.0+cu130, Python 3.13.1, chosen`."""
    chosen = choose_engine(Engines(paths))
    found = []
    if chosen is not None and chosen.record is None:
        names = importlib.metadata.packages_distributions().get("vllm", [])
        vllm = _installed(names[0]) if names else "unknown"
        found.append(f"beside vlmtui {vllm}, torch {_installed('torch')}, chosen")
    for record in Engines(paths).all():
        source, python = among(record.variant, ("cpu", "cuda", "added")), version_text(record.python)
        line = f"{source} {version_text(record.version)}, torch {version_text(record.torch)}, Python {python}"
        found.append(f"{line}, chosen" if chosen is not None and chosen.record == record else line)
    return found


def _crashes(log: Path) -> list[str]:
    try:
        return crashes_in(read_tail(log, bytes_max=_LOG_BYTES).decode("utf-8", "replace"))
    except (OSError, VlmtuiError):
        return []


def crashes_in(log: str) -> list[str]:
    """Return the newest tracebacks of a log as the exception's type and the line of vlmtui that raised it. Only
    built-in exceptions and files that vlmtui has are named: a log may contain any text."""
    found: list[str] = []
    for traceback in log.split("Traceback (most recent call last):\n")[1:]:
        place, lines = "outside vlmtui", iter(traceback.splitlines())
        for line in lines:
            if (frame := _FRAME.match(line)) and (Path(vlmtui.__file__).parent / frame[1]).is_file():
                place = f"vlmtui/{frame[1]}:{frame[2]}"
            elif line and not line.startswith(" "):
                found.append(f"{_exception(line)}, {place}")
                break
    return found[-_CRASHES_MAX:]


def _exception(line: str) -> str:
    """Return the type named at the end of a traceback if it is Python's or ours."""
    name = line.partition(":")[0].strip()
    kind = getattr(builtins, name, None) if name.isidentifier() else None
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return name
    return "VlmtuiError" if name == "vlmtui.errors.VlmtuiError" else "another exception"
