"""Styles that were parsed by an earlier start: the same rules, and only where nothing has changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.css import stylesheet as textual_stylesheet
from textual.css.errors import StylesheetError
from textual.css.stylesheet import Stylesheet

from vlmtui.ui.terminal.start_styles import StartStyles

_CSS = """
Box { color: $tone; border: tall $tone 40%; &:focus > .part { width: 1fr; margin: 1 2; text-style: bold; } }
#one, .two Box { layout: grid; grid-size: 2; dock: top; offset: 1 -50%; transition: offset 500ms in_out_cubic; }
"""


def sheet(tone: str = "#123456", css: str = _CSS) -> Stylesheet:
    made = Stylesheet(variables={"tone": tone})
    made.add_source(css, read_from=("here", "css"))
    return made


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the styles of `sheet`; what is parsed from now on fails."""
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    kept, found = tmp_path / "styles.all", sheet()
    found.parse()
    StartStyles(kept).keep(found)

    def parse(*arguments: object, **options: object) -> None:
        raise ValueError("parsed again")

    monkeypatch.setattr(textual_stylesheet, "parse", parse)
    return kept


def is_parsed_again(file: Path, found: Stylesheet) -> bool:
    StartStyles(file).fill(found)
    try:
        found.parse()
    except StylesheetError:
        return True
    return False


def test_the_rules_are_those_that_were_parsed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = sheet()
    assert not is_parsed_again(file, again)
    monkeypatch.undo()
    assert again.css == sheet().css and len(again.rules) == 3
    for one, other in zip(again.rules, sheet().rules, strict=True):
        assert repr(one.styles.get_rules()) == repr(other.styles.get_rules())
        assert one.selector_names == other.selector_names


def test_other_variables_and_other_text_are_parsed(file: Path) -> None:
    assert is_parsed_again(file, sheet(tone="#654321"))
    assert is_parsed_again(file, sheet(css=_CSS + "Box { height: 3; }"))


@pytest.mark.parametrize("damaged", [b"", b"\x80", b"\x80\x05N.", b"not a pickle"])
def test_a_damaged_file_does_no_harm(file: Path, damaged: bytes) -> None:
    file.write_bytes(damaged)
    assert is_parsed_again(file, sheet())


def test_nothing_is_written_again(file: Path) -> None:
    written, styles, again = file.stat().st_ino, StartStyles(file), sheet()
    styles.fill(again)
    again.parse()
    styles.keep(again)
    assert file.stat().st_ino == written
