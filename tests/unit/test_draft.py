"""A message being written, and its tokens for attachments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmtui.domain.conversation import Attachment, Media, Part, Text, Turn
from vlmtui.session.draft import Draft


def image(name: str = "cat.png") -> Attachment:
    return Attachment(
        modality="image", name=name, path="/x", sha256="0" * 64, width=1, height=1, size_bytes=1, format="PNG"
    )


def test_parts_follow_the_text() -> None:
    draft = Draft()
    draft.put("", {1: image("a"), 2: image("b")})
    draft.text = "Here [Image #2] and there[Image #1]?"
    assert draft.parts == (Text("Here "), Media(image("b")), Text(" and there"), Media(image("a")), Text("?"))
    assert draft.words == "Here  and there?"
    assert draft.only_tokens() == "[Image #2][Image #1]"


def test_text_that_resembles_a_token_is_text() -> None:
    draft = Draft()
    draft.fill(draft.reserve(), image())
    draft.text = "[Image #7] [Video #1] [Image #01] [image #1] [File #3]"
    assert draft.parts == (Text(draft.text),)


def test_a_loading_file_has_a_token_and_a_bad_one_loses_it() -> None:
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
    draft.text = "now [Image #1]"
    assert draft.attachments == [image()]


def test_an_unused_number_goes_to_the_next_attachment() -> None:
    draft = Draft()
    draft.put("[Image #1] [Image #2]", {1: image("a"), 2: image("b")})
    draft.text = "[Image #1]"
    assert (draft.next_number(), draft.knows(2)) == (2, True)
    assert draft.reserve() == 2 and not draft.knows(2)
    assert draft.reserve() == 3
    draft.text = ""
    assert draft.reserve(above=7) == 8


def test_attachments_are_numbered_by_the_prompt() -> None:
    draft = Draft()
    draft.put("x [Image #9] y [Image #2]", {9: image("a"), 2: image("b"), 5: image("c")})
    assert draft.renumber(9, cursor=len("x [Image #9]")) == len("x [Image #10]")
    assert draft.text == "x [Image #10] y [Image #11]"
    assert draft.numbered == {10: image("a"), 11: image("b")} and not draft.knows(5)
    assert draft.renumber(9, cursor=0) is None
    draft.put("[Image #3][Image #3]", {3: image("a")})
    assert draft.renumber(0, cursor=3) == 3
    assert draft.numbered == {1: image("a"), 2: image("a")}
    pending = draft.reserve()
    draft.text += f"[File #{pending}] [Image #1]"
    assert draft.renumber(0, cursor=0) is None, "a file that is looked at keeps its number until it is"


def test_two_leading_slashes_are_sent_as_one() -> None:
    draft = Draft()
    draft.fill(draft.reserve(), image())
    draft.text = "[Image #1]//tmp"
    assert draft.parts == (Media(image()), Text("/tmp"))
    draft.text = "a //tmp"
    assert list(draft.parts) == [Text("a //tmp")]


@given(st.lists(st.text() | st.integers(1, 4)))
def test_nothing_written_is_lost(pieces: list[str | int]) -> None:
    draft = Draft()
    draft.put("", {number: image(str(number)) for number in range(1, 4)})
    draft.text = "".join(piece if isinstance(piece, str) else f"[Image #{piece}]" for piece in pieces)
    shown = "".join(part.text if isinstance(part, Text) else f"[Image #{part.attachment.name}]" for part in draft.parts)
    if not draft.words.startswith("//"):
        assert shown == draft.text


def test_pending_attachments_are_kept_by_name() -> None:
    """A stored text has no numbers without attachments."""
    draft = Draft()
    draft.fill(draft.reserve(written="/a.png"), image())
    draft.text = "[Image #1]"
    second, third = draft.reserve(written="'/b c.png'"), 3
    draft.text = "[Image #1][File #2]"
    assert draft.reserve(written="https://x/c.png") == third
    draft.text = "See [Image #1][File #2][File #3]and [File #4]"
    assert draft.text_to_store == "See [Image #1] '/b c.png' https://x/c.png and [File #4]"
    draft.fill(second, image())
    draft.drop(third)
    assert draft.text_to_store == draft.text
    draft.text = f"[File #{draft.reserve()}]"
    assert draft.text_to_store == draft.text, "what has no name keeps its token"


@pytest.mark.parametrize(
    ("text", "parts", "words"),
    [
        ("[Image #1][Image #2] what?", (Media(image("a")), Media(image("b")), Text("what?")), "what?"),
        ("[Image #1]  what?", (Media(image("a")), Text(" what?")), " what?"),
        ("[Image #1]what?", (Media(image("a")), Text("what?")), "what?"),
        ("[Image #1] ", (Media(image("a")),), ""),
        ("is [Image #1] it?", (Text("is "), Media(image("a")), Text(" it?")), "is  it?"),
        ("[Image #1] //x", (Media(image("a")), Text("/x")), "//x"),
    ],
)
def test_the_space_after_leading_attachments_is_not_sent(text: str, parts: tuple[Part, ...], words: str) -> None:
    draft = Draft()
    draft.put(text, {1: image("a"), 2: image("b")})
    assert (draft.parts, draft.words) == (parts, words)
    assert "".join(text[offset] for offset in draft.outside) == words
    again = Draft()
    again.put_turn(Turn("user", parts), above=0)
    assert again.parts == parts
