"""Reads the question of the command line."""

from __future__ import annotations

from vlmtui.cli.inputs import TEXT_BYTES_MAX, read_input
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input


def read_question(given: str) -> str:
    """Return the question, read from stdin for `-`. Raises VlmtuiError if it is empty or not valid text."""
    if given == "-":
        try:
            given = read_input("-", bytes_max=TEXT_BYTES_MAX).decode().rstrip("\n")
        except UnicodeDecodeError as error:
            raise bad_input("The question on stdin is not UTF-8 text.", detail=str(error)) from error
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise bad_input("The question is not valid text in this terminal's encoding.", detail=str(error)) from error
    if not given.strip():
        raise VlmtuiError(ErrorKind.BAD_USAGE, "The question is empty.")
    return given
