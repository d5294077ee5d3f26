"""Rows and documents of vlmtui 0.1, which knew one engine only, are read as today's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.store.made import COMPLETE, RECIPE, opened
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.failure import Failure
from vlmtui.domain.legacy_fields import upgrade_fields
from vlmtui.errors import ErrorKind
from vlmtui.inspection.replay import Comparison, from_json, to_json
from vlmtui.store.document import document_of
from vlmtui.store.export import to_json_document
from vlmtui.store.importing import read_document
from vlmtui.store.records import ConversationId, TurnId
from vlmtui.store.store import Store

OLD_COMPARISON = b"""{"format": "vlmtui-comparison-1", "model": "shapes", "revision": null, "vllm_version": "0.32.0",
"sampling": {}, "sides": [{"mode": "chat", "prompt": "x", "prompt_token_ids": [1]}]}"""
"""As 0.1 wrote it, what may be left out left out."""


def as_before(record: dict[str, Any]) -> None:
    del record["engine"]
    record["vllm_version"] = record.pop("engine_version")


def an_exchange(store: Store) -> tuple[ConversationId, TurnId, TurnId]:
    conversation = store.new_conversation(title="a title", model="m")
    user = store.add_turn(conversation, None, user_turn("vllm_version?"))
    answer = store.begin_answer(user, RECIPE)
    store.end_answer(answer, "Yes.", COMPLETE)
    return conversation, user, answer


def test_a_comparison() -> None:
    comparison = from_json(OLD_COMPARISON)
    assert (comparison.engine, comparison.engine_version) == ("vLLM", "0.32.0")
    assert from_json(to_json(comparison)) == comparison
    assert b"vllm_version" not in to_json(comparison)


def test_a_database(tmp_path: Path) -> None:
    store = opened(tmp_path)
    conversation, _, answer = an_exchange(store)
    old = msgspec.to_builtins(RECIPE)
    as_before(old)
    store.database.rows("UPDATE turns SET recipe = ? WHERE id = ?", (msgspec.json.encode(old).decode(), answer))
    assert store.turns(conversation)[-1].generation == RECIPE


def test_an_exported_conversation(tmp_path: Path) -> None:
    store = opened(tmp_path)
    conversation, user, _ = an_exchange(store)
    store.add_comparison(user, from_json(OLD_COMPARISON), ())
    data = msgspec.json.decode(to_json_document(document_of(store, conversation)).text)
    as_before(data["turns"][1]["recipe"])
    as_before(data["turns"][0]["comparisons"][0]["document"])
    read = read_document(msgspec.json.encode(data))
    assert read.turns[1].generation == RECIPE
    [kept] = read.turns[0].comparisons
    assert isinstance(from_json(msgspec.json.encode(kept.document)), Comparison)


@pytest.mark.parametrize(
    "data", [b'"vllm_version"', b'{"vllm_version":', b'["vllm_version"]', b'{"turns":"vllm_version"}']
)
def test_what_is_no_document_is_left_to_whoever_reads_it(data: bytes) -> None:
    assert upgrade_fields(data) == data


def test_a_spec_without_a_backend_and_a_failure_of_a_former_name() -> None:
    assert msgspec.json.decode(b'{"model": "m", "name": "n"}', type=LoadSpec).backend == "vllm"
    failure = msgspec.json.decode(b'{"kind": "no_vllm", "message": "vLLM is not installed."}', type=Failure)
    assert failure.kind is ErrorKind.NO_ENGINE
