"""Paths and web addresses within a message."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from vlmtui.media.mentions import FOUND_MAX, Mention, MentionKind, as_written, find_mentions, may_name_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`cat.png`, `a b.png`, `note.txt`, `empty/`, `pics/` with two pictures."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "pics").mkdir()
    for name in ("cat.png", "a b.png", "pics/1.png", "pics/2.png"):
        Image.new("RGB", (8, 8), "red").save(tmp_path / name)
    (tmp_path / "note.txt").write_text("words")
    (tmp_path / "noend").write_text("words")
    return tmp_path


def found(text: str, folder: Path) -> list[tuple[str, MentionKind]]:
    """Return the mentions in a text, as written, with their kind."""
    return [(text[one.start : one.end], one.kind) for one in find_mentions(text, folder)]


@pytest.mark.parametrize(
    ("text", "place", "kind"),
    [
        ("{f}/cat.png what is this?", "{f}/cat.png", MentionKind.MEDIA),
        ("What is {f}/cat.png?", "{f}/cat.png", MentionKind.MEDIA),
        ("look ({f}/cat.png), please", "{f}/cat.png", MentionKind.MEDIA),
        ("see ./cat.png.", "./cat.png", MentionKind.MEDIA),
        ("@{f}/cat.png what?", "{f}/cat.png", MentionKind.MEDIA),
        ("see @cat.png", "cat.png", MentionKind.MEDIA),
        ("see cat.png", "cat.png", MentionKind.MEDIA),
        ("see pics/1.png now", "pics/1.png", MentionKind.MEDIA),
        ("see './a b.png' now", "'./a b.png'", MentionKind.MEDIA),
        ('see "a b.png"', '"a b.png"', MentionKind.MEDIA),
        (r"see ./a\ b.png now", r"./a\ b.png", MentionKind.MEDIA),
        ("see file://{f}/a%20b.png", "file://{f}/a%20b.png", MentionKind.MEDIA),
        ("{f}/nope.png", "{f}/nope.png", MentionKind.MISSING),
        ("what is nope.png?", "nope.png", MentionKind.MISSING),
        ("~/nope-there-is-none.mp4 and more", "~/nope-there-is-none.mp4", MentionKind.MISSING),
        ("cat.png/inside.png", "cat.png/inside.png", MentionKind.MISSING),
        ("read note.txt", "note.txt", MentionKind.OTHER),
        ("read {f}/noend", "{f}/noend", MentionKind.OTHER),
        ("all of {f}/pics/", "{f}/pics/", MentionKind.FOLDER),
        ("all of ./empty", "./empty", MentionKind.OTHER),
        ("see http://host/a/tri.webp?x=1, please", "http://host/a/tri.webp?x=1", MentionKind.WEB),
        ("<https://example.org>", "https://example.org", MentionKind.WEB),
    ],
)
def test_a_path_or_address_is_found_where_it_stands(folder: Path, text: str, place: str, kind: MentionKind) -> None:
    written = text.replace("{f}", str(folder))
    assert may_name_files(written)
    assert found(written, folder) == [(place.replace("{f}", str(folder)), kind)]


@pytest.mark.parametrize(
    "text",
    [
        "and/or, 1/2, km/h, TCP/IP, it's 3.5 vs. 4.0, e.g. this; end.Next",
        "sarcasm /s and /shrug, in / or at ~ or . or ..",
        "use vllm.LLM and model.py, README.rst, self.x, foo.bar()",
        "the endpoint /v1/chat/completions and /no/such/folder",
        "'til \"something is done\" isn't it? 'quoted words' and \"a title\"",
        "<|im_start|>user </s> <br/> a=b/c $HOME/x",
        "noend empty pics",
        "me@example.org",
        "",
    ],
)
def test_ordinary_words_are_none(folder: Path, text: str) -> None:
    assert found(text, folder) == []


def test_most_messages_ask_the_disk_nothing(folder: Path) -> None:
    assert not may_name_files("What is in the second picture? Answer in 3 words, please.")


def test_several_mentions_are_found_in_order_with_their_kind(folder: Path) -> None:
    text = f"compare ./cat.png with nope.gif and {folder}/pics"
    cat, nope, pics = find_mentions(text, folder)
    assert (cat.sources, cat.title) == ((folder / "cat.png",), "a PNG image")
    assert cat.size == (folder / "cat.png").stat().st_size
    assert nope.sources == ()
    assert pics.sources == (folder / "pics/1.png", folder / "pics/2.png")


def test_no_more_are_found_than_can_be_shown(folder: Path) -> None:
    assert len(find_mentions("./cat.png " * 200, folder)) == FOUND_MAX


def test_a_huge_text_is_searched_at_both_ends(folder: Path) -> None:
    text = "./cat.png " + "x" * 2_000_000 + " nope.png"
    assert [name for name, _ in found(text, folder)] == ["./cat.png", "nope.png"]


@given(st.text(alphabet="ab ./~\\\"'\n\0()httpfile:png#[]é", max_size=80))
def test_any_text_gives_places_that_do_not_overlap(text: str) -> None:
    mentions: list[Mention] = find_mentions(text, Path("/nonexistent"))
    edges = [edge for one in mentions for edge in (one.start, one.end)]
    assert edges == sorted(edges)
    assert all(one.start < one.end <= len(text) for one in mentions)


@pytest.mark.parametrize(
    "name", ["a.png", "two words.png", "it's.png", 'a "b".png', "ü – 😀.png", "$x`y`.png", "a\\b.png"]
)
def test_a_mentioned_path_is_found_again(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    (found,) = find_mentions(f"What is in {as_written(path)} ?", tmp_path)
    assert found.sources == (path,)


def test_an_address_is_named_without_its_secrets(tmp_path: Path) -> None:
    text = as_written("https://u:secret@host/a.png?token=secret")
    assert text == "https://host/a.png"
    assert [one.sources for one in find_mentions(text, tmp_path)] == [("https://host/a.png",)]
    assert as_written("no address") == ""
