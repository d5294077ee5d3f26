"""A model of Transformers whose layers are on several devices: here on the CPU and on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.adapters import write_adapter
from tests.support.engine_site import watch_for_torchvision
from tests.support.pictures import Easel
from vlmtui.domain.conversation import Attachment, user_turn
from vlmtui.domain.engine import BackendChoice, EngineInfo, LoadSpec
from vlmtui.domain.generation import Delta
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import DEFAULT_MODEL, resolve
from vlmtui.session.generation import make_request
from vlmtui.worker.backends.transformers.engine import load_engine
from vlmtui.worker.backends.transformers.loading import read_arguments

watch_for_torchvision()
pytest.importorskip("accelerate")
HERE, DISK = "cpu", "disk"
PARTS = (
    "model.visual", "model.language_model.embed_tokens", "model.language_model.norm",
    "model.language_model.rotary_emb", "lm_head", *(f"model.language_model.layers.{number}" for number in range(4)),
)  # fmt: skip
SPREAD = {part: DISK if part.endswith(("visual", ".1", ".2")) else HERE for part in PARTS}


async def told(
    engine_args: dict[str, object], picture: Attachment, adapter: str = ""
) -> tuple[EngineInfo, str, list[float]]:
    """Return the answer about a picture of a model loaded this way, and the likelihood of each token."""
    model = resolve(Registry.bundled(), DEFAULT_MODEL, BackendChoice("transformers"))
    spec = msgspec.structs.replace(model.spec, engine_args={**model.spec.engine_args, **engine_args})
    engine = await load_engine(spec, lambda step: None)
    request = make_request(model.family, [user_turn("What is in this image?", [picture])], Sampling(), logprobs=1)
    request = msgspec.structs.replace(request, adapter=adapter)
    text, numbers = "", []
    async for event in engine.generate(request):
        if isinstance(event, Delta):
            text += event.text
            numbers += [one.logprob for one in event.logprobs]
    await engine.shutdown()
    return engine.info, text, numbers


@pytest.mark.timeout(600)
async def test_a_spread_model_answers_as_a_whole_one(tmp_path: Path) -> None:
    picture = Easel(tmp_path).picture(("red", "circle", "left")).attachment
    strong = str(write_adapter(tmp_path / "strong", strength=0.3))
    whole, text, numbers = await told({}, picture)
    assert text.startswith("A red circle")
    _, _, adapted = await told({}, picture, strong)
    assert adapted != pytest.approx(numbers, abs=0.1)
    ways: list[dict[str, object]] = [
        {"device_map": "auto"}, {"device_map": SPREAD}
    ]  # fmt: skip
    for way in ways:
        info, said, likely = await told(way, picture)
        assert (said, info.device) == (text, "cpu")
        assert likely == pytest.approx(numbers, abs=1e-4)
        notes = [note for note in info.notes if note not in whole.notes]
        assert notes == [] if way == ways[0] else [note for note in notes if DISK in note and HERE in note]
        if way == ways[0]:
            _, _, likely = await told(way, picture, strong)
            assert likely == pytest.approx(adapted, abs=1e-4)
        else:
            with pytest.raises(VlmtuiError, match="takes no LoRA adapter"):
                await told(way, picture, strong)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"device_map": "auto", "device": "cpu"}, "device_map goes neither with device nor with load_format = dummy."),
        ({"device_map": {}}, "An engine argument has a wrong value."),
    ],
)
def test_arguments_that_exclude_each_other_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(VlmtuiError) as caught:
        read_arguments(LoadSpec(model="m", name="m", engine_args=given))
    assert (caught.value.kind, caught.value.message) == (ErrorKind.BAD_ENGINE_ARGUMENT, said)


@pytest.mark.parametrize("device_map", ["everywhere", {"": "moon"}])
async def test_a_map_that_names_no_device_is_refused(device_map: object, tmp_path: Path) -> None:
    from vlmtui.worker.backends.transformers.engine import BACKEND

    with pytest.raises((ValueError, RuntimeError, VlmtuiError)) as caught:
        await told({"device_map": device_map}, Easel(tmp_path).picture(("red", "circle", "left")).attachment)
    assert BACKEND.explain_load(caught.value, (), name="shapes").kind is ErrorKind.BAD_ENGINE_ARGUMENT
