"""The worker's tokens, spans and log-probabilities, without vLLM."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vlmtui.domain.generation import Candidate
from vlmtui.worker.hf.media_items import MediaSpans, patch_size_of
from vlmtui.worker.hf.vocabulary import DeltaBuffer, VocabularyReader, special_texts, token_logprob

ENTRIES: dict[int, Any] = {
    0: "<s>", 1: "Hi", 2: "▁there", 3: "âĤ", 4: "¬", 5: "<0xE2>", 6: None, 7: b"\xff", 8: "<|tool|>", 9: "ï¿½",
}  # fmt: skip
DECODED = {
    0: "<s>",
    1: "Hi",
    2: "there",
    3: "\ufffd",
    4: "\ufffd",
    5: "\ufffd",
    6: "",
    7: "\ufffd",
    8: "<|tool|>",
    9: "\ufffd",
}


class Added(str):
    special = False


class Tokenizer:
    """The part of a tokenizer that the worker uses."""

    all_special_ids = [0]
    all_special_tokens = ["<s>"]
    added_tokens_decoder = {8: Added("<|tool|>"), 1: Added("Hi")}

    def __init__(self) -> None:
        self.decoded = 0

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        assert not skip_special_tokens
        self.decoded += 1
        return "".join(DECODED.get(one, "\ufffd") for one in ids)

    def convert_ids_to_tokens(self, ids: list[int]) -> list[Any]:
        return [ENTRIES[one] for one in ids]


def test_vocabulary_entries_have_text_and_bytes() -> None:
    entries = VocabularyReader(Tokenizer()).entries(range(10))
    assert list(entries) == list(range(10))
    assert [one.text for one in entries.values()][:3] == ["<s>", "Hi", " there"]
    assert [number for number, one in entries.items() if one.special] == [0, 8]
    assert {number: one.data for number, one in entries.items() if one.data is not None} == {
        3: b"\xe2\x82", 4: b"\xac", 5: b"\xe2", 7: b"\xff", 9: "\ufffd".encode(),
    }  # fmt: skip


def test_a_token_is_looked_up_once() -> None:
    tokenizer = Tokenizer()
    entries = VocabularyReader(tokenizer)
    assert list(entries.entries([1, 1, 2, 1])) == [1, 2]
    assert list(entries.entries([2, 1])) == [2, 1]
    assert tokenizer.decoded == 2


def test_special_texts_include_added_tokens_that_look_special() -> None:
    assert special_texts(Tokenizer()) == ("<s>", "<|tool|>")


def output(text: str, ids: list[int], logprobs: Any = None) -> SimpleNamespace:
    return SimpleNamespace(text=text, token_ids=ids, logprobs=logprobs)


def values(**by_id: float) -> dict[int, SimpleNamespace]:
    return {int(name[1:]): SimpleNamespace(logprob=value) for name, value in by_id.items()}


def test_a_delta_has_each_new_token_once() -> None:
    tokens = DeltaBuffer("r", VocabularyReader(Tokenizer()), known=[0], logprobs=1)
    assert not tokens
    tokens.add(output("", [1], [values(t1=-0.5, t2=-0.75)]))
    tokens.add(output("Hi", [0], [values(t0=-0.1)]))
    assert tokens
    delta = tokens.flush()
    assert (delta.text, delta.tokens, delta.token_ids) == ("Hi", 2, (1, 0))
    assert list(delta.vocabulary) == [1]
    assert [one.token_id for one in delta.logprobs] == [1, 0]
    assert tokens.last == 0
    assert not tokens
    tokens.add(output("x", [1, 2], [values(t1=-0.5), values(t2=-3.0, t8=-0.1)]))
    assert list(tokens.flush().vocabulary) == [2, 8]
    tokens.add(output("", []))
    assert tokens.last == 2


def test_unrequested_logprobs_are_not_sent() -> None:
    tokens = DeltaBuffer("r", VocabularyReader(Tokenizer()), known=[], logprobs=None)
    tokens.add(output("Hi", [1], [values(t1=-0.5)]))
    assert tokens.flush().logprobs == ()


@pytest.mark.parametrize(
    ("found", "count", "top"),
    [
        (values(t5=-2.0, t1=-0.5, t2=-1.0), 2, [1, 2]),
        (values(t5=-2.0, t1=-0.5, t2=-1.0), 3, [1, 2, 5]),
        (values(t5=-2.0), 0, []),
        (values(t1=-0.5, t5=-0.5), 2, [5, 1]),
    ],
)
def test_the_likeliest_come_first(found: Any, count: int, top: list[int]) -> None:
    one = token_logprob(5, found, count)
    assert one.logprob == found[5].logprob
    assert [other.token_id for other in one.top] == top


def test_minus_infinity_becomes_a_number() -> None:
    assert token_logprob(1, values(t1=-math.inf), 1).top == (Candidate(token_id=1, logprob=-9999.0),)


class Place:
    def __init__(self, offset: int, length: int) -> None:
        self.offset, self.length = offset, length

    def get_num_embeds(self) -> int:
        return self.length


def item(**fields: Any) -> dict[str, SimpleNamespace]:
    return {name: SimpleNamespace(data=value) for name, value in fields.items()}


def rendered(*items: Any, modality: str = "image") -> dict[str, Any]:
    return {
        "mm_placeholders": {modality: [Place(10 * number, 4) for number in range(len(items))]},
        "mm_kwargs": {modality: list(items)},
        "mm_hashes": {modality: [f"h{number}" for number in range(len(items))]},
    }


@pytest.mark.parametrize(
    ("fields", "resized", "grid"),
    [
        ({"pixel_values": np.zeros((64, 1176)), "image_grid_thw": np.array([1, 6, 10])}, (140, 84), (1, 6, 10)),
        ({"pixel_values": np.zeros((60, 3, 14, 14)), "image_grid_hws": np.array([[6, 10]])}, (140, 84), (6, 10)),
        ({"pixel_values": np.zeros((3, 224, 336))}, (336, 224), ()),
        ({"pixel_values": np.zeros((1, 3, 224, 336))}, (336, 224), ()),
        ({"pixel_values_flat": np.zeros((5, 3, 448, 448))}, (448, 448), (5,)),
        ({"pixel_values": [np.zeros((3, 64, 64))] * 2}, (64, 64), (2,)),
        ({"pixel_values": [np.zeros((3, 64, 64)), np.zeros((3, 64, 32))]}, None, ()),
        ({"pixel_values": np.zeros((60, 3, 14, 14))}, None, ()),
        ({"image_embeds": np.zeros((60, 128))}, None, ()),
    ],
)
def test_processed_images_are_reported(fields: dict[str, Any], resized: Any, grid: Any) -> None:
    (span,) = MediaSpans(14).of(rendered(item(**fields)))
    assert (span.resized, span.grid) == (resized, grid)


def test_processed_images_are_remembered_by_hash() -> None:
    spans = MediaSpans(14)
    (first,) = spans.of(rendered(item(pixel_values=np.zeros((3, 64, 32)))))
    assert first.tensors == {"pixel_values": (3, 64, 32)}
    assert spans.of(rendered(None)) == (first,)
    assert spans.of(rendered(item(pixel_values=None))) == (first,)
    again = spans.of(rendered(None, None))
    assert [span.resized for span in again] == [(32, 64), None]
    assert [(span.index, span.offset, span.length, span.tokens) for span in again] == [(0, 0, 4, 4), (1, 10, 4, 4)]


def test_the_images_of_a_model_with_one_modality_for_all_are_images() -> None:
    plain = rendered(item(pixel_values=np.zeros((3, 64, 32))))
    chunks = {name: {"vision_chunk": held["image"]} if isinstance(held, dict) else held for name, held in plain.items()}
    assert MediaSpans(14).of(chunks) == MediaSpans(14).of(plain)


def test_a_prompt_without_media_has_no_spans() -> None:
    assert MediaSpans(None).of({"prompt_token_ids": [1]}) == ()


def test_the_patch_size_is_the_vision_configs() -> None:
    assert patch_size_of(SimpleNamespace(vision_config=SimpleNamespace(patch_size=14))) == 14
    assert patch_size_of(SimpleNamespace(vision_config={"patch_size": 16})) == 16
    assert patch_size_of(SimpleNamespace(patch_size=8)) == 8
    assert patch_size_of(SimpleNamespace(thinker_config=SimpleNamespace(vision_config={"patch_size": 14}))) == 14
    assert patch_size_of(SimpleNamespace(vision_config=SimpleNamespace(patch_size=(14, 14)))) is None
