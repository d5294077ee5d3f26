"""`vlmtui conversations`, `export`, `import` and `config`; --data-dir before and after a command."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.command_line import CommandLine, opened
from tests.unit.store.made import COMPLETE, RECIPE, attachment, exchange
from vlmtui.cli import main
from vlmtui.cli.main import CommandParser, make_parser
from vlmtui.domain.conversation import Media, Text, Turn
from vlmtui.export.conversation import FORMATS, format_of
from vlmtui.store.document import document_of
from vlmtui.store.records import ConversationId
from vlmtui.store.store import Store

EVIL = "\x1b[31m\u202e<script>"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandLine]:
    with opened(tmp_path / "vlmtui", monkeypatch, capsys) as cli:
        yield cli


@pytest.fixture
def filled(cli: CommandLine) -> ConversationId:
    """Store a conversation about a cat, and then one about a dog."""
    store = Store.open(cli.paths.data, cli.paths.media)
    cat = attachment(cli.paths.media, b"\x89PNG\r\n\x1a\n cat", name=f"{EVIL}.png")
    conversation = store.new_conversation(title=f"A cat {EVIL}", model="shapes")
    asked = store.add_turn(conversation, None, Turn("user", (Text("Is "), Media(cat), Text(" a cat?"))))
    answer = store.begin_answer(asked, RECIPE)
    store.write_answer(answer, "Yes, whiskers.", COMPLETE)
    exchange(store, store.new_conversation(title="A dog", model="owner/model"), 1)
    store.close()
    return conversation


def in_store(cli: CommandLine, conversation: str) -> Any:
    store = Store.open(cli.paths.data, cli.paths.media)
    try:
        return document_of(store, ConversationId(conversation))
    finally:
        store.close()


def test_without_conversations_the_commands_say_so(cli: CommandLine) -> None:
    assert cli("conversations") == (0, "", "No conversations yet.\n")
    assert cli.json("conversations") == []
    assert cli("export", "--all", "-o", "x").err == "No conversations yet.\n"


def test_conversations_are_listed_and_found(cli: CommandLine, filled: ConversationId) -> None:
    listed = cli.json("conversations")
    assert [one["title"] for one in listed] == ["A dog", f"A cat {EVIL}"]
    assert (listed[1]["id"], listed[1]["model"], listed[1]["turns"]) == (filled, "shapes", 2)
    assert listed[1]["updated"][:4].isdigit()
    shown = cli("conversations", "whisk").out
    assert shown.split("\n")[0].split() == ["ID", "CHANGED", "MODEL", "MESSAGES", "TITLE"]
    assert filled in shown
    assert "A dog" not in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "No conversation" in cli("conversations", "zebra").err
    assert len(cli.json("conversations", "--limit", "1")) == 1
    assert len(cli.json("conversations", "--limit", "0")) == 2


def test_an_export_is_imported_as_the_same_again(cli: CommandLine, filled: ConversationId, tmp_path: Path) -> None:
    before = in_store(cli, filled)
    for arguments in (("-o", str(tmp_path / "out" / "cat.json")), ("--format", "json")):
        ran = cli("export", filled, *arguments)
        assert ran.code == 0, ran.err
        document = tmp_path / "out" / "cat.json" if "-o" in arguments else tmp_path / "stdout.json"
        if "-o" not in arguments:
            document.write_text(ran.out)
        ran = cli("import", str(document))
        assert ran.code == 0, ran.err
        after = in_store(cli, ran.out.strip())
        assert (after.title, after.model, after.created_ms) == (before.title, before.model, before.created_ms)
        assert [(turn.role, turn.parts) for turn in after.turns] == [(turn.role, turn.parts) for turn in before.turns]
        made, was = after.turns[1].generation, before.turns[1].generation
        assert made == msgspec.structs.replace(was, imported=True, request_id="")
    assert [path.name for path in (tmp_path / "out" / "cat.media").iterdir()] == [
        Path(before.turns[0].attachments[0].path).name
    ]
    assert len(cli.json("conversations")) == 4


def test_every_format(cli: CommandLine, filled: ConversationId, tmp_path: Path) -> None:
    markdown = cli("export", filled)
    assert markdown.out.startswith("# A cat")
    assert "-o FILE" in markdown.err
    for name, words in (
        ("cat.md", "](<cat.media/"),
        ("cat.html", "data:image/png;base64,"),
        ("cat.openai.json", "url"),
    ):
        assert cli("export", filled[:11], "-o", str(tmp_path / name)).code == 0
        assert words in (tmp_path / name).read_text()
    assert list((tmp_path / "cat.media").iterdir())
    messages = json.loads((tmp_path / "cat.openai.json").read_text())["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert [part["type"] for part in messages[0]["content"]] == ["text", "image_url", "text"]


def test_all_conversations_are_exported_as_a_file_each(
    cli: CommandLine, filled: ConversationId, tmp_path: Path
) -> None:
    assert cli("export", "--all", "--format", "json", "-o", str(tmp_path / "all")).code == 0
    names = sorted(path.name for path in (tmp_path / "all").glob("*.json"))
    assert len(names) == 2
    assert names[0].startswith("a-cat")
    assert names[0].endswith(f"{filled}.json")
    ran = cli("import", *(str(tmp_path / "all" / name) for name in names))
    assert (ran.code, len(ran.out.split())) == (0, 2)
    (tmp_path / "all" / names[0]).unlink()
    (tmp_path / "all" / names[0]).mkdir()
    (tmp_path / "all" / names[1]).unlink()
    ran = cli("export", "--all", "--format", "json", "-o", str(tmp_path / "all"))
    assert ran.code == 2 and names[0] in ran.err
    assert (tmp_path / "all" / names[1]).is_file(), "the others are written"


def test_a_bad_import_is_reported_and_adds_nothing(cli: CommandLine, filled: ConversationId, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"format": "vlmtui conversation"')
    fine = tmp_path / "fine.json"
    assert cli("export", filled, "-o", str(fine)).code == 0
    for arguments, words in (
        (("export", "nope"), "no conversation 'nope'"),
        (("export", filled[:2]), "2 conversations"),
        (("export", "--all"), "-o FOLDER"),
        (("export",), "required"),
        (("export", filled, "-o", str(fine / "x.md")), "Can't write"),
        (("import", str(fine), str(broken)), "broken.json"),
        (("import", str(tmp_path / "missing.json")), "cannot be read"),
        (("config",), "config paths"),
    ):
        ran = cli(*arguments)
        assert (ran.code, ran.out) == (2, ""), arguments
        assert words in ran.err
    assert len(cli.json("conversations")) == 2


def test_where_files_live_and_which_settings_are_in_force(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = cli.json("config", "paths")
    assert paths["media"] == str(cli.paths.media)
    assert paths["conversations"].endswith(".db")
    assert str(cli.paths.runtime) in cli("config", "paths").out
    cli.paths.config.mkdir(parents=True)
    file = cli.paths.config / "config.toml"
    file.write_text('model = "llava"\n[sampling]\nseed = 3\ntop_p = 0.5\n')
    monkeypatch.setenv("VLMTUI_SEED", "4")
    shown = cli.json("config", "show")
    assert shown["model"] == {"value": "llava", "source": str(file)}
    assert shown["sampling.seed"] == {"value": 4, "source": "VLMTUI_SEED"}
    assert shown["sampling.top_p"]["source"] == str(file)
    assert shown["keep_alive"] == {"value": "5m", "source": "default"}
    assert "VLMTUI_SEED" in cli("config", "show").out
    file.write_text('[keys]\nattach = "ctrl+b"\nimage_room.zoom_in = ["z", "plus"]\n')
    lines = [line.split()[:3] for line in cli("config", "show").out.splitlines()]
    assert ["keys.attach", '"ctrl+b"', str(file)] in lines and [
        "keys.image_room.zoom_in",
        '["z","plus"]',
        str(file),
    ] in lines
    file.write_text("modell = 1")
    assert cli("config", "show").code == 2


def test_an_option_changes_the_data_folder(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (("--data-dir", "other", "config", "paths"), ("config", "paths", "--data-dir", "other")):
        monkeypatch.setenv("VLMTUI_DATA_DIR", str(cli.paths.data.parent))
        assert cli.json(*arguments)["data"] == str(tmp_path / "other" / "data")
    monkeypatch.setenv("VLMTUI_DATA_DIR", str(cli.paths.data.parent))
    ran = cli("ask", "--data-dir", "third", "one")
    assert (ran.code, ran.out) == (0, "user: one \n")
    assert cli.workers == []
    there = cli("ps", "--json", "--data-dir", "third")
    assert [one["model"] for one in json.loads(there.out)] == ["shapes"]
    assert str(tmp_path / "third") in json.loads(there.out)[0]["log"]
    assert cli("stop", "--all", "--data-dir", "third").code == 0
    assert cli("config", "paths", "--data-dir", "").code == 2
    assert cli("config", "paths", "--data-dir", "~nobody-of-that-name").code == 0


def test_options_of_the_app(capsys: pytest.CaptureFixture[str]) -> None:
    parsed = make_parser().parse_args(["--resume", "abc"])
    assert (parsed.command, parsed.app_resume, parsed.app_continue) == ("app", "abc", None)
    assert make_parser().parse_args(["--continue"]).app_continue is True
    for arguments, words in (
        (["--continue", "--resume", "x"], "not allowed with"),
        (["--continue", "ps"], "opens the app"),
        (["--resume", "x", "ask", "q"], "opens the app"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        assert words in capsys.readouterr().err


def test_the_parser_brings_nothing_heavy() -> None:
    import os
    import subprocess
    import sys

    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}  # it brings sqlite3
    code = "import sys; from vlmtui.cli.main import make_parser; make_parser().format_help(); print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    loaded = ran.stdout.split()
    assert {"msgspec", "asyncio", "PIL", "platformdirs", "sqlite3"}.isdisjoint(loaded)


def test_export_and_import_print_json(cli: CommandLine, tmp_path: Path) -> None:
    store = Store.open(cli.paths.data)
    conversation = store.new_conversation(title="Cats")
    store.close()
    (written,) = cli.json("export", conversation, "-o", str(tmp_path / "c.json"))
    assert written == {"id": conversation, "file": str(tmp_path / "c.json")}
    (added,) = cli.json("import", str(tmp_path / "c.json"))
    assert added["file"] == str(tmp_path / "c.json") and added["missing"] == [] and added["id"] != conversation
    assert cli.json("stop", "--all") == []
    assert cli("export", conversation, "--json").code == 2
    assert cli("export", conversation, "-o", "").code == 2
    assert cli("prompt", "shapes", "hi", "--images", "99999999999").code == 2


def commands(parser: argparse.ArgumentParser, name: str = "") -> dict[str, argparse.ArgumentParser]:
    """Return the words of every command and action."""
    found = {name: parser} if name else {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                assert isinstance(inner, CommandParser)
                inner.fill()
                found |= commands(inner, f"{name} {word}".strip())
    return found


def test_every_command_prints_json() -> None:
    found = commands(make_parser())
    assert len(found) > 15
    without = [name for name, parser in found.items() if "--json" not in parser.format_help()]
    assert without == ["store", "config", "completion", "help"], "groups that say nothing, a script, and pages"


def test_a_document_is_read_up_to_a_size(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmtui.cli.conversations.DOCUMENT_BYTES_MAX", 1_000_000)
    ran = cli("import", "/dev/zero")
    assert ran.code == 2 and "/dev/zero is too large: the limit is 1.0 MB" in ran.err


def test_every_format_can_be_asked_for(cli: CommandLine) -> None:
    helped = cli("export", "--help").out
    assert f"{{{','.join(FORMATS)}}}" in helped
    for name, found in FORMATS.items():
        assert [format_of(Path(f"A.B{suffix.upper()}")) for suffix in found.suffixes] == [name] * len(found.suffixes)
    assert format_of(Path("anything")) == "md"
