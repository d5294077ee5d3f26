"""What the last version left on a disk is opened by this one: database, documents, settings, trust, family records."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.unit.store.made import exchange, integrity
from vlmtui.config.settings import SamplingSettings, load_settings
from vlmtui.config.trust import TrustStore
from vlmtui.domain.attachment import Attachment
from vlmtui.errors import ErrorKind
from vlmtui.inspection import replay
from vlmtui.inspection.html_export import export_html
from vlmtui.inspection.markdown_export import export_markdown
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.remote_code import RemoteCode
from vlmtui.store.document import document_of
from vlmtui.store.export import to_json_document, to_markdown
from vlmtui.store.importing import add_document, read_document
from vlmtui.store.opening import FILE
from vlmtui.store.records import StoredTurn
from vlmtui.store.store import Store

LEFT = Path(__file__).parents[1] / "data" / "last_version"
MEDIA = "/vlmtui-last-version/media"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The last version's data folder, its media where the database says."""
    data = tmp_path / "data"
    shutil.copytree(LEFT / "media", data / "media")
    shutil.copyfile(LEFT / FILE, data / FILE)
    with closing(sqlite3.connect(data / FILE)) as database:
        for table, column in (("turns", "parts"), ("drafts", "attachments")):
            database.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (MEDIA, str(data / "media")))
        database.commit()
    return data


@pytest.fixture
def store(folder: Path) -> Store:
    opened = Store.open(folder)
    assert opened.recovered is None
    return opened.store


def check_first_answer(answer: StoredTurn) -> None:
    """The answer whose every column is filled, as database and document have it."""
    assert (answer.text, answer.state, answer.tokens, answer.siblings) == ("A red square.", "complete", 3, 2)
    record, statistics = msgspec.to_builtins(answer.generation), answer.statistics
    assert record["model"] == "Qwen/Qwen2-VL-2B-Instruct"
    assert record["family"] == "qwen2_vl" and record["revision"] == "c0ffee" and record["record_sha256"] == "f" * 64
    assert "0.32.0" in str(record)  # the engine's version, whatever the field is called
    assert record["mode"] == "chat" and record["prompt"] == "<|image_pad|>What is it?"
    assert record["sampling"]["temperature"] == 0.7 and record["sampling"]["extra"] == {"min_p": 0.1}
    assert record["seed"] == 7 and record["engine_args"] == {"dtype": "bfloat16"}
    assert record["system_prompt"] == "Be brief." and record["request_id"] == "request-1"
    assert record["spec"]["engine_args"] == {"max_model_len": 4096} and record["spec"]["lora"]["name"] == "vision"
    assert statistics is not None
    assert (statistics.usage.image_tokens, statistics.timings.ttft_s, statistics.stop) == (8, 0.25, "</s>")


def content(attachment: Attachment) -> bytes:
    return Path(attachment.path).read_bytes()


def test_the_database(store: Store, folder: Path) -> None:
    pinned, draft = store.conversations()
    assert (pinned.conversation.title, pinned.conversation.model, pinned.conversation.pinned) == (
        "A red square",
        "qwen2_vl",
        True,
    )
    asked, answer = store.path(pinned.conversation.id)
    (red,) = asked.turn.attachments
    assert (red.name, red.source, red.notes) == ("red.png", "/home/user/red.png", ("turned upright by EXIF",))
    assert content(red).startswith(b"\x89PNG")
    check_first_answer(answer)
    failed = store.turn(next(turn for turn in store.siblings(answer.id) if turn != answer.id))
    assert failed.failure is not None and failed.failure.kind is ErrorKind.OUT_OF_MEMORY
    assert failed.generation is not None and failed.generation.mode == "raw"
    kept = store.draft(pinned.conversation.id)
    assert kept.text == "[Image #1] and this?" and content(kept.attachments[1]).startswith(b"\x89PNG")
    assert store.draft(draft.conversation.id).text == "not sent"
    assert [one.title for one in store.deleted()] == ["Deleted"]
    assert [hit.turn for hit in store.search("square")] == [answer.id]
    exchange(store, pinned.conversation.id, 1)
    store.close()
    assert integrity(folder / FILE) == "ok"


def test_the_comparison_of_the_database(store: Store) -> None:
    _, answer = store.path(store.conversations()[0].conversation.id)
    (kept,) = store.comparisons(answer.id)
    check_comparison(replay.from_json(msgspec.json.encode(kept.document)))
    store.close()


def check_comparison(comparison: replay.Comparison) -> None:
    assert [(side.mode, side.answer) for side in comparison.sides] == [
        ("chat", "A red square."),
        ("raw", "A red square."),
    ]
    assert comparison.difference is not None and comparison.difference.prompt_first_divergence == 5
    assert comparison.sides[0].request is not None and comparison.sides[0].usage.image_tokens == 2
    assert "0.32.0" in export_markdown(comparison)


def test_the_exported_conversation(tmp_path: Path) -> None:
    store = Store.open(tmp_path).store
    imported = add_document(store, read_document((LEFT / "conversation.json").read_bytes()), LEFT)
    assert imported.missing == ()
    asked, answer = store.path(imported.conversation)
    check_first_answer(answer)
    assert content(asked.turn.attachments[0]).startswith(b"\x89PNG")
    assert len(store.comparisons(answer.id)) == 1
    document = document_of(store, imported.conversation)
    assert "A red square." in to_markdown(document).text
    again = add_document(store, read_document(to_json_document(document, inline=True).text.encode()), LEFT)
    check_first_answer(store.path(again.conversation)[-1])
    store.close()


def test_the_exported_comparison() -> None:
    comparison = replay.from_json((LEFT / "comparison.json").read_bytes())
    check_comparison(comparison)
    (red,) = comparison.attachments
    assert red.content is not None and red.content.startswith(b"\x89PNG")
    assert "data:image/png;base64," in export_html(comparison, lambda item: None)


def test_the_settings(tmp_path: Path) -> None:
    paths = Paths.below(tmp_path)
    paths.config.mkdir(parents=True)
    shutil.copyfile(LEFT / "config.toml", paths.config / "config.toml")
    settings = load_settings(paths, {})
    assert (settings.model, settings.keep_alive, settings.hang_s) == ("qwen2_vl", "10m", 45.0)
    assert (settings.graphics, settings.theme, settings.system_prompt) == ("halfcell", "light", "Be brief.")
    assert settings.sampling == SamplingSettings(temperature=0.7, top_p=0.9, max_tokens=256, seed=7)


def test_what_was_trusted(tmp_path: Path) -> None:
    paths = Paths.below(tmp_path)
    paths.config.mkdir(parents=True)
    shutil.copyfile(LEFT / "trusted.json", paths.config / "trusted.json")
    trusted = TrustStore(paths)
    assert trusted.is_trusted(RemoteCode(model="owner/model", revision="0123abcd"))
    assert not trusted.is_trusted(RemoteCode(model="owner/model", revision="4567"))
    assert trusted.is_trusted(RemoteCode(model="owner/other", revision="4567")), "a yes before the download"


def test_a_family_record(tmp_path: Path) -> None:
    shutil.copyfile(LEFT / "family.toml", tmp_path / "mine.toml")
    registry = Registry.with_users(tmp_path)
    assert registry.warnings == ()
    assert registry["mine"].models == ("owner/mine",) and registry["mine"].takes["image"].max_items == 8
