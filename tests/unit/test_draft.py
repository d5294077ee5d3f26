"""The message that is being written, and the tokens in it."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Media, Text
from vlmtui.ui.controllers.draft import Draft


def image(name: str = "cat.png") -> Attachment:
    return Attachment(
        modality="image", name=name, path="/x", sha256="0" * 64, width=1, height=1, size_bytes=1, format="PNG"
    )


def test_parts_follow_the_text() -> None:
    draft = Draft()
    draft.fill(draft.reserve(), image("a"))
    draft.fill(draft.reserve(), image("b"))
    draft.text = "Here [Image #2] and there[Image #1]?"
    assert draft.parts == (Text("Here "), Media(image("b")), Text(" and there"), Media(image("a")), Text("?"))
    assert draft.words == "Here  and there?"
    assert draft.only_tokens() == "[Image #2][Image #1]"


def test_what_only_looks_like_a_token_is_text() -> None:
    draft = Draft()
    draft.fill(draft.reserve(), image())
    draft.text = "[Image #7] [Video #1] [Image #01] [image #1] [File #3]"
    assert draft.parts == (Text(draft.text),)


def test_a_file_that_is_looked_at_waits_and_a_bad_one_goes() -> None:
    draft = Draft()
    number = draft.reserve(above=4)
    assert number == 5
    draft.text = "see [File #5]"
    assert (draft.pending, draft.attachments) == ([5], [])
    draft.drop(number)
    assert (draft.pending, draft.parts) == ([], (Text("see [File #5]"),))


def test_a_cut_token_can_be_pasted_again() -> None:
    draft = Draft()
    draft.fill(draft.reserve(), image())
    draft.text = ""
    assert draft.attachments == []
    assert draft.reserve() == 2, "its number is not given away"
    draft.text = "now [Image #1]"
    assert draft.attachments == [image()]


def test_two_slashes_begin_a_text_with_one() -> None:
    draft = Draft()
    draft.fill(draft.reserve(), image())
    draft.text = "[Image #1]//tmp"
    assert draft.parts == (Media(image()), Text("/tmp"))
    draft.text = "a //tmp"
    assert list(draft.parts) == [Text("a //tmp")]


@given(st.lists(st.text() | st.integers(1, 4)))
def test_nothing_written_is_lost(pieces: list[str | int]) -> None:
    draft = Draft()
    for number in range(1, 4):
        draft.fill(draft.reserve(), image(str(number)))
    draft.text = "".join(piece if isinstance(piece, str) else f"[Image #{piece}]" for piece in pieces)
    shown = "".join(part.text if isinstance(part, Text) else f"[Image #{part.attachment.name}]" for part in draft.parts)
    if not draft.words.startswith("//"):
        assert shown == draft.text


@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        ("look at [Image #1] here", "look [Image #1] at here", "look at here [Image #1]"),
        ("[Image #1] here", None, "here [Image #1]"),
        ("a[Image #1]b", "[Image #1]ab", "ab[Image #1]"),
        ("[Image #2][Image #1]", "[Image #1][Image #2]", None),
        ("one\n[Image #1]", "[Image #1]\none", None),
        ("[Image #1]", None, None),
    ],
)
def test_a_token_moves_by_a_word(text: str, left: str | None, right: str | None) -> None:
    draft = Draft()
    for name in "ab":
        draft.fill(draft.reserve(), image(name))
    draft.text = text
    token = next(token for token in draft.tokens if token.number == 1)
    steps: tuple[Literal[-1, 1], ...] = (-1, 1)
    for step, wanted in zip(steps, (left, right), strict=True):
        edit = draft.moved(token, step)
        moved = None if edit is None else text[: edit.start] + edit.text + text[edit.end :]
        assert moved == wanted
        if moved is not None and edit is not None:
            assert moved[: edit.cursor].endswith("[Image #1]")


def test_the_token_before_the_cursor_is_meant_else_the_one_behind() -> None:
    draft = Draft()
    for name in "ab":
        draft.fill(draft.reserve(), image(name))
    draft.text = "x [Image #1][Image #2]"
    numbers = [token.number if token else None for token in map(draft.token_at, (0, 2, 12, 22))]
    assert numbers == [None, 1, 1, 2]
