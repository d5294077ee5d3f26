"""A prompt's tokens as pieces."""

from __future__ import annotations

import pytest

from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import MediaSpan
from vlmtui.domain.model_reading import bytes_of_entry
from vlmtui.inspection.tokens import pieces_of, shown_bytes
from vlmtui.text import quoted, visible

SPECIAL = frozenset({1, 2, 9})


def picture(name: str = "cat.jpg") -> Attachment:
    return Attachment(
        modality="image", name=name, path="/x", sha256="0" * 64, width=8, height=8, size_bytes=1, format="PNG"
    )


def span(offset: int, length: int, *, index: int = 0, tokens: int | None = None) -> MediaSpan:
    return MediaSpan(
        modality="image", index=index, offset=offset, length=length, tokens=length if tokens is None else tokens
    )


def test_an_image_is_one_piece_with_its_file() -> None:
    ids = (1, *[9] * 1280, 2, 5)
    texts = ("<|vision_start|>", *["<|image_pad|>"] * 1280, "<|vision_end|>", "Hi")
    pieces = pieces_of(ids, texts, SPECIAL, (span(1, 1280),), (picture(),))
    assert [piece.kind for piece in pieces] == ["special", "media", "special", "text"]
    image = pieces[1]
    assert image.label == "<|image_pad|> × 1,280 from cat.jpg"
    assert (image.text, image.offset, image.end, len(image.ids)) == ("<|image_pad|>", 1, 1281, 1280)
    assert image.media == span(1, 1280)
    assert tuple(token for piece in pieces for token in piece.ids) == ids


def test_separators_and_missing_files_of_an_image_are_counted() -> None:
    (piece,) = pieces_of((9, 9, 3, 9), ("<i>", "<i>", "\n", "<i>"), SPECIAL, (span(0, 4, index=2, tokens=3),))
    assert piece.label == "<i> × 3 (4 tokens in total) from image 3"


def test_overlapping_and_outlying_spans_are_ignored() -> None:
    spans = (span(0, 2), span(1, 2), span(3, 9), span(2, 0))
    pieces = pieces_of((9, 9, 5, 5), ("i", "i", "a", "b"), SPECIAL, spans)
    assert [(piece.kind, piece.offset) for piece in pieces] == [("media", 0), ("text", 2), ("text", 3)]


def test_parts_of_one_character_are_shown_as_bytes() -> None:
    raw = {5: b" \xe2\x82", 6: b"\xac"}
    pieces = pieces_of((5, 6, 7), (" \ufffd", "\ufffd", "x"), SPECIAL, raw_bytes=raw)
    assert [piece.text for piece in pieces] == [" ⟨e2 82⟩", "⟨ac⟩", "x"]
    assert [piece.label for piece in pieces] == ["part of “€”", "part of “€”", ""]


def test_each_part_belongs_to_its_own_character() -> None:
    raw = {5: b"\xe6\x97", 6: b"\xa5", 7: b"\xe6\x9c", 8: b"\xac\xe2", 9: b"\x82\xac", 10: b"\xff"}
    pieces = pieces_of(tuple(raw), ("\ufffd",) * 6, frozenset(), raw_bytes=raw)
    assert [piece.label[8:] for piece in pieces] == ["“日”", "“日”", "“本€”", "“本€”", "“本€”", ""]


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        (("<0xE2>", "<0x82>", "<0xAC>"), ["⟨e2⟩", "⟨82⟩", "⟨ac⟩"]),
        (("\udce2\udc82", "\udcac", "€"), ["⟨e2 82⟩", "⟨ac⟩", "€"]),
        (("\ufffd", "a\ufffd", "b"), ["⟨?⟩", "a⟨?⟩", "b"]),
        (("<0x41>", "<0x0A>", "x"), ["<0x41>", "<0x0A>", "x"]),
    ],
)
def test_bytes_are_read_from_byte_tokens_and_surrogates(texts: tuple[str, ...], shown: list[str]) -> None:
    assert [piece.text for piece in pieces_of((5, 6, 7), texts, SPECIAL)] == shown


def test_a_replacement_character_that_is_really_in_the_text_stays() -> None:
    (piece,) = pieces_of((5,), ("\ufffd",), SPECIAL, raw_bytes={5: "\ufffd".encode()})
    assert piece.text == "\ufffd"


def test_ids_and_texts_must_have_equal_length() -> None:
    with pytest.raises(ValueError, match="2 token ids, but 1 texts"):
        pieces_of((1, 2), ("a",), SPECIAL)


def test_byte_level_entries_are_decoded() -> None:
    assert bytes_of_entry("âĤ") == b"\xe2\x82"
    assert bytes_of_entry("ĠHello") == b" Hello"
    assert bytes_of_entry("<0xAC>") == b"\xac"
    assert bytes_of_entry("▁Hi") is None
    assert bytes_of_entry("") is None
    assert shown_bytes("aé".encode() + b"\xff\xfe!") == "aé⟨ff fe⟩!"


def test_hostile_text_is_made_visible() -> None:
    assert visible("\x1b[31m\u202e\x7f\ud800\n") == "␛[31m<U+202E>␡<U+D800>\n"
    assert quoted("a\nb\t\x1b") == "“a↵b⇥␛”"
    assert len(quoted("x" * 5000)) < 70
