"""Installing an engine from a terminal: the progress as a line, and the question before a first load."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from vlmtui.cli.output import is_tty, note, write_notice
from vlmtui.engines.records import EngineRecord, Engines
from vlmtui.paths import Paths
from vlmtui.text import one_line

_CLEAR = "\r\x1b[K"
_HEARTBEAT_S = 30.0


class ProgressLine:
    """How far an installation is, on stderr: one updating line on a terminal, else a line a stage and now and then."""

    def __init__(self) -> None:
        self._updates = is_tty(sys.stderr) and os.environ.get("TERM", "dumb") != "dumb"
        self._started = time.monotonic()
        self._told = 0.0
        self._stage = ""

    def show(self, stage: str, detail: str, fraction: float | None) -> None:
        """Show it; may be called as often as one likes."""
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
        """Take the line away."""
        if self._updates:
            write_notice(sys.stderr, _CLEAR)


def install_with_progress(
    paths: Paths, variant: str, *, python: Path | None = None, as_json: bool = False
) -> EngineRecord:
    """Install an engine and tell how far it is. Raises VlmtuiError; an interruption leaves what was downloaded."""
    from vlmtui.engines.install import install_engine
    from vlmtui.engines.packages import InstallStep
    from vlmtui.engines.variants import VARIANTS

    line = ProgressLine()

    def show(progress: InstallStep) -> None:
        if as_json:
            print(json.dumps(progress._asdict()), flush=True)
        else:
            line.show(*progress)

    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        return install_engine(Engines(paths), VARIANTS[variant], show, python=python)
    finally:
        line.end()
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def offer_engine(paths: Paths) -> bool:
    """Where somebody sits at the terminal, offer to install an engine; whether one was. Raises VlmtuiError."""
    if not (is_tty(sys.stdin) and is_tty(sys.stderr)):
        return False
    from vlmtui.engines.hardware import find_hardware
    from vlmtui.engines.variants import VARIANTS

    hardware = find_hardware()
    variant = VARIANTS[hardware.variant]
    note(f"No engine here. Found: {hardware.describe()}; Python {sys.version_info[0]}.{sys.version_info[1]}.")
    note(f"Install {variant.title} in {Engines(paths).folder}? {variant.size_text}.")
    try:
        sys.stderr.write("[Y/n] ")
        sys.stderr.flush()
        said = sys.stdin.readline()
    except (OSError, ValueError):
        return False
    if said.strip().lower() not in ("", "y", "yes") or not said:
        return False
    record = install_with_progress(paths, variant.name)
    from vlmtui.registry.routes import forget_installed

    forget_installed()
    note(f"{record.name} is installed.")
    return True
