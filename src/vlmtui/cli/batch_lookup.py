"""Reads one item of a batch again, as its command line names it."""

from __future__ import annotations

import contextlib
import io
import os
from contextlib import ExitStack
from pathlib import Path

from vlmtui.cli.batch_items import open_items
from vlmtui.cli.parser import make_parser
from vlmtui.cli.raw_prompt import read_raw_prompt
from vlmtui.errors import bad_input
from vlmtui.media.web_address import is_url
from vlmtui.session.batch.background import STDIN
from vlmtui.session.batch.item import BadItem
from vlmtui.session.batch.item_message import FoundItem
from vlmtui.session.batch.records import BatchRecord
from vlmtui.session.batch.results import StoredResult
from vlmtui.text import one_line


def find_item(record: BatchRecord, result: StoredResult) -> FoundItem:
    """Return the item of a result. Blocking: the input is read up to it.

    Raises VlmtuiError if the input can't be read, or has another item there by now."""
    if record.input == STDIN:
        raise bad_input("The batch read its items from stdin, so they can't be read again.")
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            arguments = make_parser().parse_args(list(record.words))
    except SystemExit as error:
        raise bad_input("The command line of the batch is not understood.", detail=" ".join(record.words)) from error
    arguments.strict = False
    folder = Path(record.folder)
    if arguments.input is not None:
        arguments.input = str(folder / arguments.input)
    media = [(kind, place if is_url(place) else _joined(folder, place)) for kind, place in arguments.media or ()]
    arguments.media = media or None
    with ExitStack() as stack:
        for item in open_items(arguments, stack).items:
            if item.line != result.line:
                continue
            if isinstance(item, BadItem):
                raise item.failure.error()
            if item.id is not None and item.id in (result.id, _joined(folder, result.id or "")):
                template = read_raw_prompt(_in_folder(arguments.raw_prompt, folder)) if arguments.raw_prompt else ""
                return FoundItem(item, arguments.system_prompt, template, arguments.num_frames)
            break
    name = one_line(record.input) or "the input"
    raise bad_input(f"Line {result.line:,} of {name} is another item now.", hint="The batch can go on with it.")


def _joined(folder: Path, name: str) -> str:
    """Return a name, maybe a pattern, that starts at a folder."""
    return os.path.join(folder, name)  # noqa: PTH118  (a path would lose what a pattern ends with)


def _in_folder(text: str, folder: Path) -> str:
    return f"@{folder / text[1:]}" if text.startswith("@") else text
