"""Paths after an `@`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from vlmtui.ui.chat.suggestions import PathCompletion, Span, complete, path_at


def at(marked: str) -> Span | None:
    """The span at the `|`."""
    return path_at(marked.replace("|", ""), marked.index("|"))


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("@|", Span(0, 1, "")),
        ("look at @ca|", Span(8, 11, "ca")),
        ("@ca|t.png now", Span(0, 8, "ca")),
        ("first\n@b|", Span(6, 8, "b")),
        ("a\t@~/x/|", Span(2, 7, "~/x/")),
        ('see @"my fi|', Span(4, 11, "my fi")),
        ('see @"my| file" and', Span(4, 14, "my")),
        ('@"my f| and more', Span(0, 6, "my f")),
        ('@"|', Span(0, 2, "")),
        ("@a @b|", Span(3, 5, "b")),
        ("@a@b|", Span(0, 4, "a@b")),
        ("me@example.org|", None),
        ("|@a", None),
        ("@a |", None),
        ("plain|", None),
        ('@"done"|', None),
        ('@"line\n|', None),
        ("(@a|", None),
    ],
)
def test_the_word_before_the_cursor(text: str, span: Span | None) -> None:
    assert at(text) == span


@given(st.text(alphabet='@ab" \n~/', max_size=12), st.integers(0, 12))
def test_a_span_is_always_a_part_that_holds_the_cursor(text: str, cursor: int) -> None:
    cursor = min(cursor, len(text))
    span = path_at(text, cursor)
    if span is not None:
        assert text[span.start] == "@"
        assert span.start < cursor <= span.end <= len(text)
        assert text[:cursor].endswith(span.fragment)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("cats", "Cats 2", ".secret"):
        (tmp_path / name).mkdir()
    for name in ("cat.png", "cat10.png", "cat2.png", "bobcat.png", "c-a-t.png", ".cat.png", "cats/deep.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    (tmp_path / "cat.txt").write_text("no picture")
    return tmp_path


def texts(fragment: str, base: Path) -> list[str]:
    return [candidate.text for candidate in complete(fragment, base)]


def test_names_that_begin_with_it_then_those_that_contain_it(folder: Path) -> None:
    expected = ["cats/", "Cats 2/", "cat.png", "cat2.png", "cat10.png", "bobcat.png"]
    assert texts("cat", folder) == expected
    assert sorted(texts("", folder)) == sorted([*expected, "c-a-t.png"])
    assert texts("zebra", folder) == []


def test_hidden_ones_need_a_dot(folder: Path) -> None:
    assert texts(".", folder)[:2] == [".secret/", ".cat.png"]
    assert texts(".s", folder) == [".secret/"]
    assert texts("..", folder)[0] == "../"


def test_relative_absolute_and_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert texts("cats/d", folder) == ["cats/deep.png"]
    assert texts(f"{folder}/cats/", Path("/")) == [f"{folder}/cats/deep.png"]
    monkeypatch.setenv("HOME", str(folder))
    assert texts("~/cats/", Path("/")) == ["~/cats/deep.png"]
    assert texts("~", Path("/")) == texts("~/", Path("/")) != []
    assert complete("~/cat.png", Path("/"))[0].path == folder / "cat.png"


def test_a_completion_is_inserted_into_the_text() -> None:
    def mention(text: str, *, is_folder: bool = False) -> str:
        return PathCompletion(Path("/x"), is_folder, text).mention

    assert mention("a.png") == "@a.png"
    assert mention("my cat.png") == '@"my cat.png"'
    assert mention("my pics/", is_folder=True) == '@"my pics/'
    assert mention("pics/", is_folder=True) == "@pics/"


def test_a_folder_that_was_taken_can_be_gone_on_from(folder: Path) -> None:
    (candidate,) = complete("Cats 2", folder)
    span = path_at(candidate.mention, len(candidate.mention))
    assert span is not None and span.fragment == "Cats 2/"
    assert candidate.name == "Cats 2/"


@pytest.mark.parametrize(
    "fragment", ["gone/x", "/proc/1/root/zqzqzqzqzq", "a\0b/", "~nobody-here/x", "cat.png/", "x" * 5000 + "/"]
)
def test_nothing_is_ever_raised(folder: Path, fragment: str) -> None:
    assert complete(fragment, folder) == []


def test_hostile_names_and_pipes(folder: Path) -> None:
    (folder / os.fsdecode(b"zz\xff")).mkdir()
    os.mkfifo(folder / "zz.png")
    (folder / "zz\n.png").write_bytes(b"")
    assert [candidate.path.name for candidate in complete("zz", folder)] == ["zz\n.png"]


def test_thousands_of_files_are_bounded(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number}.png").touch()
    assert [one.text for one in complete("", tmp_path, look_s=60.0)] == [f"{number}.png" for number in range(50)]
    assert len(complete("1", tmp_path, limit=7, look_s=60.0)) == 7
