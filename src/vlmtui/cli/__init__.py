"""The command line. Exit codes: 0 fine, 1 failed, 2 bad usage or bad input; 128 + n when signal n ended it."""

from vlmtui.cli.main import main

__all__ = ["main"]
