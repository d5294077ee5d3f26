"""The arguments of the commands for stored conversations. Nothing heavy is imported here."""

from __future__ import annotations

import argparse


def fill_conversations(conversations: argparse.ArgumentParser) -> None:
    """Add the arguments of `vlmtui conversations`."""
    conversations.description = "List the conversations: pinned ones first, then the most recently changed."
    conversations.add_argument("query", metavar="QUERY", nargs="?", help="only those that contain these words")
    conversations.add_argument("--limit", type=_count, default=50, metavar="N", help="at most so many (50); 0: all")
    conversations.add_argument("--json", action="store_true", help="print a JSON array")


def fill_export(export: argparse.ArgumentParser) -> None:
    """Add the arguments of `vlmtui export`."""
    export.description = (
        "Write a conversation to stdout or to a file. JSON is complete, and `vlmtui import` reads it; "
        "the other formats contain the active branch. Media go to a folder next to a Markdown or JSON file."
    )
    which = export.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "id", metavar="ID", nargs="?", help="as `vlmtui conversations` lists it; its beginning is enough"
    )
    which.add_argument("--all", action="store_true", help="every conversation, a file each; needs -o FOLDER")
    export.add_argument(
        "--format", choices=("md", "html", "json", "openai"), help="(default: by the file's name, or md)"
    )
    export.add_argument("-o", "--output", metavar="FILE|FOLDER", help="the target; an existing file is replaced")
    export.add_argument(
        "--paths",
        action="store_true",
        help="JSON and OpenAI: include the folders of files and local models",
    )
    export.add_argument("--json", action="store_true", help="print a JSON array of what was written; needs -o")


def fill_import(reading: argparse.ArgumentParser) -> None:
    """Add the arguments of `vlmtui import`."""
    reading.description = (
        "Import conversations written by `vlmtui export --format json`, and print their new ids. "
        "Nothing is overwritten."
    )
    reading.add_argument("files", metavar="FILE", nargs="+", help="the JSON document, its media in it or next to it")
    reading.add_argument("--json", action="store_true", help="print a JSON array of the new conversations")


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise ValueError
    return count
