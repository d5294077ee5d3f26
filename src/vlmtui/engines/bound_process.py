"""Commands that the kernel kills with the process that starts them. Uses only the standard library."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from vlmtui.processes import isolated_command

_BOUND = """
import ctypes, os, signal, sys
if sys.platform.startswith("linux"):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def bound_command(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command` (its first word an absolute path) and dies with the thread of this process
    that starts it (PR_SET_PDEATHSIG). On other systems than Linux it only runs it."""
    return isolated_command(sys.executable, "-c", _BOUND, str(os.getpid()), *command)
