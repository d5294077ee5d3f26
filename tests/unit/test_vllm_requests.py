"""What the worker gives vLLM, without vLLM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from vlmtui.domain.dials import STRUCTURED
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.backends.vllm.requests import aborted, as_chunks, check_placeholders
from vlmtui.worker.hf.media_items import MediaItem

ITEMS = [MediaItem("image", Image.new("RGB", (2, 2), shade), shade) for shade in ("red", "blue")]


def test_images_become_chunks_in_their_order() -> None:
    prompt = as_chunks({"prompt": "p", "multi_modal_data": {"image": [one.data for one in ITEMS]}}, ITEMS)
    chunks = prompt["multi_modal_data"]["vision_chunk"]
    assert [(one["type"], one["image"], one["uuid"]) for one in chunks] == [
        ("image", one.data, one.uuid) for one in ITEMS
    ]
    assert set(prompt["multi_modal_data"]) == {"vision_chunk"}
    assert prompt["multi_modal_uuids"] == {"vision_chunk": ["red", "blue"]}
    assert as_chunks({"prompt": "p"}, []) == {"prompt": "p"}


@pytest.mark.parametrize("modality", ["image", "vision_chunk"])
def test_each_image_needs_its_run_of_tokens(modality: str) -> None:
    spans = [SimpleNamespace(offset=0, length=2), SimpleNamespace(offset=3, length=1)]
    rendered: dict[str, Any] = {"prompt_token_ids": [7, 7, 1, 7], "mm_placeholders": {modality: spans}}
    config = SimpleNamespace(image_token_id=7)
    check_placeholders(rendered, ITEMS, config, None)
    with pytest.raises(VlmtuiError, match="2 image placeholders for 1 images") as caught:
        check_placeholders(rendered, ITEMS[:1], config, None)
    assert caught.value.kind is ErrorKind.PLACEHOLDER_MISMATCH


def test_an_aborted_structured_answer_names_the_structure_and_the_first_of_the_engine() -> None:
    wanted = Sampling(extra={STRUCTURED: {"regex": r"\p{L}+"}})
    assert "Try again" in str(aborted("error", Sampling(), "choice"))
    assert str(aborted("error", wanted, "")) == (
        "The engine can't write an answer with this regex. Simplify the regex."
    )
    later = aborted("error", wanted, "choice")
    assert later.kind is ErrorKind.BAD_INPUT and later.detail == "finish reason: error"
    assert "first structured answer (choice)" in later.message and 'backend = "guidance"' in later.hint
