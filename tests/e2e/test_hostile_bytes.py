"""Hostile text never reaches the terminal as it is: checked on the bytes that were written to it.

What a model says, what a conversation is called, what a file is called and what an engine logs hold escape sequences
here, and the app and the command line show all of it.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from pathlib import Path

import pytest

from tests.support.fake_worker import OPTIONS_VARIABLE, fake_cli
from tests.support.pictures import Easel
from tests.support.terminal import Terminal, search_paths
from vlmtui.domain.conversation import Media, Text, Turn
from vlmtui.media.stage import stage
from vlmtui.paths import Paths
from vlmtui.store.records import ConversationId
from vlmtui.store.store import Store

pytestmark = pytest.mark.e2e
EMPTY = "Message, or / for commands"
_OURS = re.compile(r"\x1b\[[?<>]?[\d;]*\$?[CEGHJKLMXdhlmpru]|\x1b\]22;\w+\x07")
"""Cursor, erasing, lines that move, colours, modes, the pointer's shape."""


def hostile(what: str) -> str:
    """A title set, a screen cleared, colours by C1 bytes, a string left open, a turned reading direction."""
    return f"\x1b]0;{what}\x07\x1b[2J{what}\x9b31m\x9d0;{what}\x9c\u202e{what}\u2066\x1bc\x7f\x90"


def seen(what: str) -> str:
    """Return its beginning on the screen."""
    return f"␛]0;{what}"


def assert_harmless(written: bytes | bytearray, *names: str) -> None:
    """Valid UTF-8, no sequence but those that a terminal app needs, and none of them from the hostile texts."""
    text = written.decode()
    for name in names:
        assert not re.search(rf"\x1b\]0;{name}|\x1b\[2J{name}", text)
    rest = _OURS.sub("", text)
    wild = [at for at, char in enumerate(rest) if unicodedata.category(char) in ("Cc", "Cf") and char not in "\r\n"]
    assert not wild, [rest[max(0, at - 20) : at + 40] for at in wild[:5]]


@pytest.fixture
def paths(short_path: Path) -> Paths:
    return Paths.below(short_path)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a picture and a folder of hostile names, one of which is not even UTF-8."""
    folder = tmp_path / "files"
    folder.mkdir()
    drawn = Easel(tmp_path).picture(("red", "circle", "center")).path
    (folder / f"{hostile('file')}.png").write_bytes(drawn.read_bytes())
    Path(os.fsdecode(bytes(folder) + b"/\xff\x9b31m.png")).write_bytes(drawn.read_bytes())
    (folder / hostile("folder")).mkdir()
    return folder


@pytest.fixture
def conversation(paths: Paths, files: Path) -> ConversationId:
    """A conversation with a hostile title, text and file name."""
    picture = stage(files / f"{hostile('file')}.png", paths.media)
    store = Store.open(paths.data, paths.media)
    made = store.new_conversation(title=hostile("title"), model="shapes")
    question = store.add_turn(made, None, Turn("user", (Media(picture), Text(hostile("question")))))
    store.add_turn(made, question, Turn("assistant", (Text(hostile("kept")),)))
    store.close()
    return made


def start(paths: Paths, *arguments: str, cwd: Path | None = None) -> Terminal:
    options = {
        "says": [hostile("answer"), "`code`", "end"],
        "log": [hostile("log")],
        "template": hostile("template"),
    }
    environment = {
        "HOME": str(paths.config.parent),
        **search_paths(),
        "VLMTUI_DATA_DIR": str(paths.config.parent),
        "VLMTUI_GRAPHICS": "halfcell",
        OPTIONS_VARIABLE: json.dumps(options),
    }
    return Terminal([*fake_cli(), *arguments], env=environment, columns=150, rows=45, cwd=str(cwd) if cwd else None)


def back_to_chat(terminal: Terminal) -> None:
    terminal.wait_for(lambda text: EMPTY not in text)
    terminal.press("escape")
    terminal.wait_for(EMPTY)


def leave(terminal: Terminal) -> None:
    terminal.press("ctrl+q")
    assert terminal.wait_for_end() == 0


def test_chat_log_and_file_browser_print_no_control_sequence(paths: Paths, files: Path) -> None:
    with start(paths, "--model", "shapes", "--keep-alive", "0", cwd=files) as terminal:
        terminal.wait_for(EMPTY)
        terminal.type("hello")
        terminal.press("enter")
        terminal.wait_for(seen("answer"))
        terminal.wait_for("<|im_end|>")
        terminal.press("f4")
        terminal.wait_for(seen("log"))
        back_to_chat(terminal)
        terminal.press("ctrl+o")
        terminal.wait_for(lambda text: seen("file") in text and seen("folder") in text and "DCFF" in text)
        terminal.press("down")
        terminal.wait_for(lambda text: text.count(seen("file")) == 2)
        terminal.press("escape")
        terminal.wait_for(lambda text: seen("file") not in text)
        leave(terminal)
        assert_harmless(terminal.raw, "answer", "log", "file", "folder")


def test_stored_and_exported_text_prints_no_control_sequence(paths: Paths, conversation: ConversationId) -> None:
    with start(paths, "--resume", conversation, "--keep-alive", "0") as terminal:
        terminal.wait_for(lambda text: all(seen(what) in text for what in ("question", "kept", "file")))
        terminal.press("ctrl+l")
        terminal.wait_for(seen("title"))
        back_to_chat(terminal)
        leave(terminal)
        assert_harmless(terminal.raw, "question", "kept", "file", "title")


def test_comparison_and_inspector_print_no_control_sequence(paths: Paths, conversation: ConversationId) -> None:
    with start(paths, "--resume", conversation, "--keep-alive", "0") as terminal:
        terminal.wait_for(seen("kept"))
        terminal.wait_for(lambda text: EMPTY in text and "ready" in text)
        terminal.press("f10")
        terminal.wait_for("Send both")
        terminal.press("ctrl+r")
        terminal.wait_for(lambda text: text.count("stop <|im_end|>") == text.count(seen("answer")) == 2)
        terminal.press("f6")
        terminal.wait_for("Answers: identical")
        terminal.press("f12")
        terminal.wait_for("Inspector")
        parts = {"1": seen("question"), "2": "index", "3": "SHA-256", "4": seen("template"), "5": "Stops at"}
        terminal.wait_for(seen("question"))
        for part, wanted in {**parts, "6": seen("answer")}.items():
            terminal.type(part)
            terminal.wait_for(wanted)
        terminal.press("escape")
        terminal.wait_for("Send both")
        leave(terminal)
        assert_harmless(terminal.raw, "question", "kept", "file", "template", "answer")


def test_commands_print_no_control_sequence(paths: Paths, files: Path, conversation: ConversationId) -> None:
    picture = str(files / f"{hostile('file')}.png")
    shown = {
        ("conversations",): seen("title"),
        ("conversations", "--json"): "title",
        ("export", conversation): seen("kept"),
        ("export", conversation, "--format", "html"): "kept",
        ("ask", "--keep-alive", "1m", "--image", picture, "hello"): seen("answer"),
        ("ask", "--json", "--mode", "both", "--image", picture, "hello"): "answer",
        ("ask", "--image", f"{picture}.missing", "hello"): seen("file"),
        ("prompt", "qwen2_vl", "--image", picture, hostile("question")): seen("question"),
        (hostile("command"),): "command",
        ("conversations", hostile("none")): "No conversation",
        ("stop", "shapes"): "was stopped",
    }
    for arguments, wanted in shown.items():
        with start(paths, *arguments) as terminal:
            terminal.wait_for_end()
            written = terminal.raw.decode()
            assert wanted in written, f"{arguments}: {written}"
            assert_harmless(terminal.raw, "title", "kept", "answer", "file", "question", "none", "command")
