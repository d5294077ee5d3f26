"""Logging to a file, never to the terminal."""

from __future__ import annotations

import logging
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path

from vlmtui.errors import VlmtuiError
from vlmtui.paths import private_dir


def log_to_file(path: Path) -> bool:
    """Send all log records of this process to `path` (mode 0600, rotated at 1 MiB, three old files kept), or nowhere if
    it can't be written. Return whether there is a log."""
    handler: logging.Handler = logging.NullHandler()
    with suppress(VlmtuiError, OSError):
        private_dir(path.parent)
        handler = RotatingFileHandler(path, maxBytes=2**20, backupCount=3, encoding="utf-8", errors="backslashreplace")
        path.chmod(0o600)
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    return not isinstance(handler, logging.NullHandler)
