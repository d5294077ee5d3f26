"""The command line. Exit codes: 0 success, 1 failure, 2 bad usage or bad input, 128 + n if signal n ended it."""

from vlmtui.cli.main import main

__all__ = ["main"]
