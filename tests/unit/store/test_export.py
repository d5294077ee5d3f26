"""Exports hold everything, harm nobody; an import gives back the same, and refuses what is wrong by its place."""

from __future__ import annotations

import base64
import errno
import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.store.made import COMPLETE, RECIPE, attachment, needed, opened, search
from vlmtui import files
from vlmtui.domain.conversation import Media, Text, Turn, assistant_turn, system_turn, user_turn
from vlmtui.domain.generation import Failure
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.export.conversation import ExportText, Place, to_html, to_json_document, to_markdown, to_openai
from vlmtui.store.document import Document, add_document, document_of, read_document, with_attachments
from vlmtui.store.records import AnswerData, StoredDraft, StoredModel
from vlmtui.store.store import Store

EVIL = '</pre><script>alert(1)</script>"onerror=\x1b[31m\u202e'
CAT, FILM = b"\x89PNG\r\n\x1a\n cat", b"\0\0\0\x18ftypisom film"


def filled(folder: Path) -> tuple[Store, Document]:
    """A conversation with two branches, a video, a failure, a draft, a comparison."""
    store = opened(folder)
    cat = attachment(store.media, CAT, name=f"{EVIL}.png")
    film = attachment(store.media, FILM, name="film.mp4", modality="video")
    conversation = store.new_conversation(title=f"Cats {EVIL}", model="shapes")
    system = store.add_turn(conversation, None, system_turn("Be brief."))
    asked = store.add_turn(conversation, system, Turn("user", (Text("Is "), Media(cat), Text(" it?"), Media(film))))
    first = store.begin_answer(asked, RECIPE)
    store.write_answer(first, "**Yes**, " + EVIL, COMPLETE)
    second = store.begin_answer(asked, RECIPE)
    failure = Failure(kind=ErrorKind.OUT_OF_MEMORY, message="No memory.", hint="Use less.")
    store.write_answer(second, "Perh", AnswerData(state="failed", failure=failure))
    store.add_comparison(first, {"runs": [1, {"text": "x"}]})
    store.activate(first)
    store.pin(conversation)
    store.save_draft(conversation, StoredDraft(text="[Image #1] next", attachments={1: cat}))
    return store, document_of(store, conversation)


def write(exported: ExportText, folder: Path) -> bytes:
    for copy in exported.copies:
        target = folder / copy.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(copy.source.read_bytes())
    return exported.text.encode()


def plain(document: Document) -> Document:
    """Without what differs between two stores: ids, where the files lie, and that records are imported."""
    ids = {turn.id: at for at, turn in enumerate(document.turns)}

    def at(turn: int | None) -> int | None:
        return None if turn is None else ids[turn]

    turns = tuple(
        msgspec.structs.replace(
            turn,
            id=ids[turn.id],
            parent=at(turn.parent),
            active_child=at(turn.active_child),
            generation=turn.generation and msgspec.structs.replace(turn.generation, imported=False, request_id=""),
        )
        for turn in document.turns
    )
    bare = with_attachments(document, lambda item: msgspec.structs.replace(item, path=""))
    parts = [turn.parts for turn in bare.turns]
    turns = tuple(msgspec.structs.replace(turn, parts=part) for turn, part in zip(turns, parts, strict=True))
    return msgspec.structs.replace(bare, turns=turns, active_root=at(document.active_root), media=())


@pytest.mark.parametrize("inline", [True, False])
def test_json_gives_back_the_same(inline: bool, tmp_path: Path) -> None:
    store, document = filled(tmp_path / "a")
    exported = to_json_document(document, Place(inline=inline))
    assert str(tmp_path) not in exported.text
    data = write(exported, tmp_path / "out")
    assert len(exported.copies) == (0 if inline else 2)

    other = opened(tmp_path / "b")
    imported = add_document(other, read_document(data), tmp_path / "out")
    again = document_of(other, imported.conversation)
    assert plain(again) == plain(document)
    assert imported.missing == ()
    assert [Path(item.path).read_bytes() for item in again.turns[1].attachments] == [CAT, FILM]
    assert all(Path(item.path).is_relative_to(other.media) for item in again.attachments)
    assert needed(other) == {item.sha256 for item in document.attachments}
    assert other.path(imported.conversation)[0].text == "Be brief."
    assert len(search(other, "yes")) == 1
    other.close()
    store.close()


def test_importing_never_overwrites(tmp_path: Path) -> None:
    store, document = filled(tmp_path)
    data = write(to_json_document(document, Place(inline=True)), tmp_path)
    one, two = (add_document(store, read_document(data), tmp_path) for _ in range(2))
    assert len({one.conversation, two.conversation}) == 2
    assert len(store.conversations()) == 3
    assert plain(document_of(store, one.conversation)) == plain(document)
    store.close()


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    store, document = filled(tmp_path)
    for item in document.attachments:
        Path(item.path).unlink(missing_ok=True)
    imported = add_document(store, read_document(to_json_document(document).text.encode()), tmp_path)
    assert imported.missing == (f"{EVIL}.png", "film.mp4")
    assert "the file is missing" in to_markdown(document).text
    assert "the file is missing" in to_html(document).text
    with pytest.raises(VlmtuiError, match="missing"):
        to_openai(document)
    store.close()


Damage = Callable[[Any], object]
REFUSED: list[tuple[str, Damage, str]] = [
    ("format", lambda d: d.update(format="other"), "$.format"),
    ("version", lambda d: d.update(version=2), "$.version"),
    ("no title", lambda d: d.pop("title"), "title"),
    ("unknown field", lambda d: d["turns"][1].update(colour="red"), "`colour` is unknown - at `$.turns[1]`"),
    ("unknown deep", lambda d: d["turns"][2]["recipe"].update(x=1), "$.turns[2].recipe"),
    ("wrong type", lambda d: d["turns"][2].update(created_ms="now"), "$.turns[2].created_ms"),
    ("negative", lambda d: d["turns"][2].update(tokens=-1), "$.turns[2].tokens"),
    ("huge", lambda d: d["turns"][2].update(tokens=2**63), "$.turns[2].tokens"),
    ("role", lambda d: d["turns"][0].update(role="tool"), "$.turns[0].role"),
    ("running", lambda d: d["turns"][2].update(state="running"), "$.turns[2].state"),
    ("failed user", lambda d: d["turns"][1].update(state="failed"), "$.turns[1].state"),
    ("same id", lambda d: d["turns"][1].update(id=d["turns"][0]["id"]), "$.turns[1].id"),
    ("late parent", lambda d: d["turns"][1].update(parent=d["turns"][2]["id"]), "$.turns[1].parent"),
    ("child", lambda d: d["turns"][0].update(active_child=d["turns"][3]["id"]), "$.turns[0].active_child"),
    ("root", lambda d: d.update(active_root=d["turns"][1]["id"]), "$.active_root"),
    ("part", lambda d: d["turns"][1]["parts"][0].update(type="audio"), "$.turns[1].parts[0]"),
    ("not listed", lambda d: d["media"].pop(), "$.media"),
    ("listed twice", lambda d: d["media"].append(d["media"][0]), "$.media[2].sha256"),
    ("both", lambda d: d["media"][0].update(file="x"), "$.media[0]"),
    ("hash", lambda d: d["media"][0].update(sha256="../../etc"), "$.media[0].sha256"),
    ("suffix", lambda d: d["media"][0].update(suffix="/../x"), "$.media[0].suffix"),
]


@pytest.mark.parametrize(("change", "place"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_faulty_document_is_refused_with_the_place(change: Damage, place: str, tmp_path: Path) -> None:
    store, document = filled(tmp_path)
    raw = json.loads(to_json_document(document, Place(inline=True)).text)
    change(raw)
    with pytest.raises(VlmtuiError) as raised:
        read_document(json.dumps(raw).encode())
    assert place in raised.value.message
    store.close()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000], ids=str)
def test_other_data_is_refused(data: bytes) -> None:
    with pytest.raises(VlmtuiError, match="Can't read the conversation"):
        read_document(data)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"base64": "%%%"}, "$.media[0].base64"),
        ({"base64": None, "file": "../secret"}, "$.media[0]"),
        ({"base64": None, "file": "/etc/passwd"}, "$.media[0]"),
        ({"base64": None, "file": "link"}, "$.media[0]"),
        ({"base64": None, "file": "a\0b"}, "$.media[0]"),
    ],
)
def test_media_that_are_wrong_are_refused(change: dict[str, str | None], place: str, tmp_path: Path) -> None:
    store, document = filled(tmp_path / "a")
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(CAT)
    (folder / "link").symlink_to(tmp_path / "secret")
    raw = json.loads(to_json_document(document, Place(inline=True)).text)
    raw["media"][0].update(change)
    with pytest.raises(VlmtuiError) as raised:
        add_document(store, read_document(json.dumps(raw).encode()), folder)
    assert place in raised.value.message
    assert len(store.conversations()) == 1
    store.close()


@pytest.mark.parametrize("inline", [True, False])
def test_a_damaged_stored_file_is_reported_and_not_exported(inline: bool, tmp_path: Path) -> None:
    store, document = filled(tmp_path / "a")
    cat = document.turns[1].attachments[0]
    Path(cat.path).write_bytes(b"x" * len(CAT))
    exported = to_json_document(document, Place(inline=inline))
    assert exported.damaged == (cat.name,)
    assert to_markdown(document).damaged == (cat.name,)
    assert "missing or damaged" in to_markdown(document).text and "missing or damaged" in to_html(document).text
    with pytest.raises(VlmtuiError, match="damaged"):
        to_openai(document)

    other = opened(tmp_path / "b")
    imported = add_document(other, read_document(write(exported, tmp_path / "out")), tmp_path / "out")
    assert imported.missing == (cat.name,)
    assert other.path(imported.conversation)[0].text == "Be brief."
    other.close()
    store.close()


@pytest.mark.parametrize("inline", [True, False])
def test_damaged_media_are_not_imported_and_damaged_stored_ones_replaced(inline: bool, tmp_path: Path) -> None:
    store, document = filled(tmp_path / "a")
    cat = document.turns[1].attachments[0]
    data = write(to_json_document(document, Place(inline=inline)), tmp_path / "out")
    Path(cat.path).write_bytes(b"x" * len(CAT))
    assert add_document(store, read_document(data), tmp_path / "out").missing == ()
    assert Path(cat.path).read_bytes() == CAT

    raw = json.loads(data)
    if inline:
        raw["media"][0]["base64"] = base64.b64encode(b"another").decode()
    else:
        (tmp_path / "out" / raw["media"][0]["file"]).write_bytes(b"another")
    other = opened(tmp_path / "b")
    imported = add_document(other, read_document(json.dumps(raw).encode()), tmp_path / "out")
    assert imported.missing == (cat.name,)
    assert not (other.media / cat.sha256[:2]).exists()
    other.close()
    store.close()


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, document = filled(tmp_path / "a")
    data = write(to_json_document(document, Place(inline=True)), tmp_path)
    other = opened(tmp_path / "b")

    def full(*_: object, **__: object) -> object:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "_open_unfinished", full)
    with pytest.raises(VlmtuiError, match="disk is full") as raised:
        add_document(other, read_document(data), tmp_path)
    assert "Can't read the conversation" not in raised.value.message
    other.close()
    store.close()


@pytest.mark.parametrize(
    "change", [{"width": 10**30}, {"height": -5}, {"size_bytes": -1}, {"page": 0}, {"fps": -1.0}, {"duration_s": 1e300}]
)
def test_an_attachment_has_the_size_of_one(change: dict[str, float], tmp_path: Path) -> None:
    store, document = filled(tmp_path)
    raw = json.loads(to_json_document(document, Place(inline=True)).text)
    raw["turns"][1]["parts"][1]["attachment"].update(change)
    with pytest.raises(VlmtuiError, match=r"\$\.turns"):
        read_document(json.dumps(raw).encode())
    store.close()


@pytest.mark.parametrize("place", [("updated_ms",), ("created_ms",), ("turns", 2, "ended_ms")])
@pytest.mark.parametrize("time", [2**53, 253_402_300_800_000, -1])
def test_times_lie_within_the_years_that_everybody_knows(time: int, place: tuple[Any, ...], tmp_path: Path) -> None:
    store, document = filled(tmp_path)
    raw = json.loads(to_json_document(document, Place(inline=True)).text)
    inner = raw
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = time
    with pytest.raises(VlmtuiError) as raised:
        read_document(json.dumps(raw).encode())
    assert str(place[-1]) in raised.value.message
    store.close()


SECRET = "http://user:sEcReT@host.example:8080/a/b.png?token=tOkEn#part"


def test_a_document_for_others_holds_no_secrets_and_no_folders(tmp_path: Path) -> None:
    store = opened(tmp_path)
    web = msgspec.structs.replace(attachment(store.media, b"cat"), source=SECRET)
    file = msgspec.structs.replace(attachment(store.media, b"dog"), source="/home/me/private/dog.png")
    conversation = store.new_conversation(model="/home/me/models/mine")
    asked = store.add_turn(conversation, None, user_turn("?", [web, file]))
    mine = StoredModel(model="/home/me/models/mine", name="/home/me/models/mine")
    made = msgspec.structs.replace(
        RECIPE, model="/home/me/models/mine", made_by=mine, engine_args={"a": "/home/me/x"}, adapter="/home/me/lora"
    )
    store.write_answer(store.begin_answer(asked, made), "Yes.", COMPLETE)
    document = document_of(store, conversation)
    text = to_json_document(document).text
    assert "sEcReT" not in text and "tOkEn" not in text and "/home/" not in text
    assert "http://host.example:8080/a/b.png" in text and "dog.png" in text and "mine" in text
    assert "/home/" not in to_markdown(document).text + to_html(document).text
    assert "/home/" not in to_openai(document).text
    store.close()


def test_markdown(tmp_path: Path) -> None:
    store, document = filled(tmp_path)
    text, copies, _ = to_markdown(document)
    assert text.count("\n## ") == 3
    assert "**Yes**" in text and "Perh" not in text
    assert "\x1b" not in text and "\u202e" not in text
    assert "> owner/model, raw, 12 + 3 tokens, 1.5 s" in text
    for copy in copies:
        assert f"](<{copy.name}>)" in text
        assert not Path(copy.name).is_absolute() and copy.source.is_file()
    assert len(copies) == 2
    store.close()


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_raw_answer_and_its_sampling_are_exported_and_imported(tmp_path: Path) -> None:
    store = opened(tmp_path)
    conversation = store.new_conversation(title="Cats")
    answer = store.begin_answer(store.add_turn(conversation, None, user_turn("A cat?")), RECIPE)
    raw = msgspec.structs.replace(RECIPE, mode="raw")
    used = Sampling(temperature=0.5, top_p=1.0, top_k=0, seed=7)
    store.write_answer(answer, "Yes.", msgspec.structs.replace(COMPLETE, generation=raw, used=used))
    document = document_of(store, conversation)
    assert ", raw, temperature 0.5, seed 7, " in to_markdown(document).text
    exported = write(to_json_document(document), tmp_path)
    added = add_document(store, read_document(exported), tmp_path).conversation
    again = store.path(added)[-1]
    assert (again.mode, again.used) == ("raw", used)
    store.close()


def test_html_is_one_page_that_runs_nothing(tmp_path: Path) -> None:
    store, document = filled(tmp_path)
    page = to_html(document).text
    parser = Elements()
    parser.feed(page)
    tags = {tag for tag, _ in parser.found}
    inner = {"h1", "h2", "article", "div", "p", "figure", "img", "video", "figcaption"}
    assert tags <= {"html", "head", "meta", "title", "style", "body"} | inner
    names = {name for _, attributes in parser.found for name in attributes}
    assert not {name for name in names if name.startswith("on")}
    sources = [attributes["src"] or "" for _, attributes in parser.found if "src" in attributes]
    assert [source[:15] for source in sources] == ["data:image/png;", "data:video/mp4;"]
    assert base64.b64decode(sources[0].partition(",")[2]) == CAT
    assert "<script>alert(1)</script>" in parser.text
    assert "\x1b" not in page and "\u202e" not in page
    assert "prefers-color-scheme" in page
    store.close()


def test_openai_messages(tmp_path: Path) -> None:
    store, document = filled(tmp_path)
    found = json.loads(to_openai(document).text)
    system, user, assistant = found["messages"]
    assert found["model"] == "shapes"
    assert system == {"role": "system", "content": "Be brief."}
    assert [part["type"] for part in user["content"]] == ["text", "image_url", "text", "video_url"]
    url = user["content"][1]["image_url"]["url"]
    assert url == "data:image/png;base64," + base64.b64encode(CAT).decode()
    assert assistant["content"].startswith("**Yes**")
    store.close()


def test_an_answer_that_runs_is_exported_as_interrupted(tmp_path: Path) -> None:
    store = opened(tmp_path)
    conversation = store.new_conversation()
    answer = store.begin_answer(store.add_turn(conversation, None, user_turn("?")), RECIPE)
    store.write_answer(answer, "so far", AnswerData(tokens=2))
    document = document_of(store, conversation)
    assert (document.turns[1].state, document.turns[1].parts) == ("interrupted", assistant_turn("so far").parts)
    read_document(to_json_document(document).text.encode())
    empty = document_of(store, store.new_conversation())
    assert read_document(to_json_document(empty).text.encode()).turns == ()
    assert to_markdown(empty).text.startswith("# ")
    store.close()
