"""Installs an engine from a terminal: shows progress, and offers installation before a first load."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from vlmtui.cli.output import is_tty, note, write_notice
from vlmtui.engines.records import EngineRecord, Engines
from vlmtui.engines.variants import EngineBuild
from vlmtui.paths import Paths
from vlmtui.text import one_line

if TYPE_CHECKING:
    from vlmtui.domain.engine import LoadSpec

_CLEAR = "\r\x1b[K"
_HEARTBEAT_S = 30.0


class ProgressLine:
    """Installation progress on stderr: one updating line on a terminal; otherwise a line per stage and now and then."""

    def __init__(self) -> None:
        self._updates = is_tty(sys.stderr) and os.environ.get("TERM", "dumb") != "dumb"
        self._started = time.monotonic()
        self._told = 0.0
        self._stage = ""

    def show(self, stage: str, detail: str, fraction: float | None) -> None:
        """Show the progress; may be called often."""
        now = time.monotonic()
        share = "" if fraction is None else f" {fraction:.0%}"
        text = one_line(f"{stage}{share}{f' · {detail}' if detail else ''} · {now - self._started:.0f} s")
        if self._updates:
            try:
                width = os.get_terminal_size(sys.stderr.fileno()).columns
            except OSError:
                width = 80
            write_notice(sys.stderr, _CLEAR + text[: width - 1])
        elif stage != self._stage or now - self._told >= _HEARTBEAT_S:
            self._told = now
            note(text)
        self._stage = stage

    def end(self) -> None:
        """Clear the line."""
        if self._updates:
            write_notice(sys.stderr, _CLEAR)


def install_with_progress(
    paths: Paths, build: EngineBuild, *, python: Path | None = None, as_json: bool = False
) -> EngineRecord:
    """Install an engine and show the progress. Raises VlmtuiError; an interruption keeps the downloads."""
    from vlmtui.engines.install import install_engine
    from vlmtui.engines.packages import InstallStep

    line = ProgressLine()

    def show(progress: InstallStep) -> None:
        if as_json:
            print(json.dumps(progress._asdict()), flush=True)
        else:
            line.show(*progress)

    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        return install_engine(Engines(paths), build, show, python=python)
    finally:
        line.end()
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def offer_engine(paths: Paths, spec: LoadSpec) -> bool:
    """On an interactive terminal, offer to install the engine that a spec needs. Return whether one was installed.
    Raises VlmtuiError."""
    if not (is_tty(sys.stdin) and is_tty(sys.stderr)):
        return False
    from vlmtui.engines.hardware import find_hardware
    from vlmtui.engines.pinned import pinned_build
    from vlmtui.engines.variants import VARIANTS

    hardware = find_hardware()
    if spec.pinned is not None:
        build = pinned_build(spec.pinned, hardware.variant)
        lacking = f"{spec.name} needs vLLM {spec.pinned}, in an environment of its own."
    else:
        build, lacking = VARIANTS[hardware.variant], "No engine is installed."
    note(f"{lacking} Found: {hardware.describe()}; Python {sys.version_info[0]}.{sys.version_info[1]}.")
    note(f"Install {build.title} in {Engines(paths).folder}? {build.size_text}.")
    try:
        sys.stderr.write("[Y/n] ")
        sys.stderr.flush()
        said = sys.stdin.readline()
    except (OSError, ValueError):
        return False
    if said.strip().lower() not in ("", "y", "yes") or not said:
        return False
    record = install_with_progress(paths, build)
    from vlmtui.registry.routes import forget_installed

    forget_installed()
    note(f"{record.name} is installed.")
    return True
