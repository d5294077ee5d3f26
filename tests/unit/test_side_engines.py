"""The engines of a stored comparison's sides."""

from __future__ import annotations

import msgspec
import pytest

from vlmtui.domain.sampling import Sampling
from vlmtui.export.comparison import engine_titles, export_html, export_markdown
from vlmtui.inspection.replay import Comparison, EngineFingerprint, Side, engine_of, from_json, to_json

VLLM = EngineFingerprint(
    model="shapes", revision="0123456789", engine="vLLM", engine_version="0.32.0", device="cpu", dtype="float32"
)


def compared(*engines: EngineFingerprint | None) -> Comparison:
    chat, raw = (Side(mode="chat", prompt="", prompt_token_ids=(), engine=one) for one in engines)
    return Comparison(
        model="shapes", revision="0123456789", engine="vLLM", engine_version="0.32.0", backend="vllm", device="cpu",
        dtype="float32", sampling=Sampling(), sides=(chat, msgspec.structs.replace(raw, mode="raw")),
    )  # fmt: skip


def other(**changed: object) -> EngineFingerprint:
    return msgspec.structs.replace(VLLM, **changed)


@pytest.mark.parametrize(
    ("engine", "chat", "raw"),
    [
        (None, "vLLM 0.32.0 · float32 · cpu", "vLLM 0.32.0 · float32 · cpu"),
        (
            other(engine="Transformers", engine_version="5.13.1"),
            "vLLM 0.32.0 · float32 · cpu",
            "Transformers 5.13.1 · float32 · cpu",
        ),
        (other(model="mine"), "shapes · vLLM 0.32.0 · float32 · cpu", "mine · vLLM 0.32.0 · float32 · cpu"),
        (
            other(revision="9876543210"),
            "shapes 01234567 · vLLM 0.32.0 · float32 · cpu",
            "shapes 98765432 · vLLM 0.32.0 · float32 · cpu",
        ),
        (
            other(engine_args={"max_model_len": 512}),
            "vLLM 0.32.0 · float32 · cpu · max_model_len=default",
            "vLLM 0.32.0 · float32 · cpu · max_model_len=512",
        ),
    ],
)
def test_the_sides_of_a_document_have_different_names(engine: EngineFingerprint | None, chat: str, raw: str) -> None:
    document = from_json(to_json(compared(None, engine)))
    assert engine_titles(document) == [chat, raw]
    pages = (export_markdown(document), export_html(document, lambda one: None))
    assert all((raw in page) is (engine is not None) for page in pages)


def test_a_document_without_kind_and_device_shows_neither() -> None:
    text = to_json(compared(None, None)).decode()
    for name in ("backend", "device", "dtype"):
        text = "\n".join(line for line in text.splitlines() if f'"{name}"' not in line)
    old = from_json(text.encode())
    found = engine_of(old, old.sides[0])
    assert (found.backend, found.device, found.dtype, found.facts) == ("", "", "", "vLLM 0.32.0")
