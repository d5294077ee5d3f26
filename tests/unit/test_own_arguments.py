"""Processor arguments of a model family: sent with several images, and replaced when a model of another family is
loaded."""

from __future__ import annotations

import json

import msgspec
import pytest

from vlmtui.cli.main import main
from vlmtui.domain.conversation import Attachment, user_turn
from vlmtui.domain.dials import PROCESSOR
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import VlmtuiError
from vlmtui.registry.estimate import estimated_tokens, settings_of
from vlmtui.registry.loader import Registry
from vlmtui.registry.schema import Family
from vlmtui.session.dials import processor_arguments, with_parameters
from vlmtui.session.generation import PromptMode, make_request
from vlmtui.session.settings import ChatSettings
from vlmtui.worker.backends.remote.bodies import RequestBodies
from vlmtui.worker.backends.remote.probe import ServerFacts

REGISTRY = Registry.bundled()
QWEN, INTERN, PHI = REGISTRY["qwen2_vl"], REGISTRY["internvl_chat"], REGISTRY["phi3_v"]
WIDE = Attachment(
    modality="image", name="a.png", path="/a.png", sha256="0" * 64, width=4480, height=448, size_bytes=1, format="PNG"
)


@pytest.mark.parametrize("mode", ["chat", "raw"])
def test_a_record_has_arguments_for_several_images(mode: PromptMode) -> None:
    def sent(count: int, *typed: str) -> dict[str, object]:
        sampling = with_parameters(Sampling(), INTERN, list(typed))
        turn = user_turn("What?", [WIDE] * count)
        request = make_request(INTERN, [turn], sampling, mode=mode)
        given = processor_arguments(request.sampling, {})
        assert set(request.own_arguments) == given.keys() - processor_arguments(sampling, {}).keys()
        return given

    assert sent(0) == sent(1) == {}
    assert sent(2) == {"max_dynamic_patch": 4}
    assert sent(2, "max_dynamic_patch=6") == {"max_dynamic_patch": 6}
    assert sent(2, "min_dynamic_patch=2") == {"max_dynamic_patch": 4, "min_dynamic_patch": 2}


def test_the_prompt_command_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    for more, wanted in (([], 4), (["--set", "max_dynamic_patch=9"], 9)):
        assert main(["prompt", "internvl_chat", "--images", "2", "--json", *more, "What?"]) == 0
        assert json.loads(capsys.readouterr().out)["mm_processor_kwargs"] == {"max_dynamic_patch": wanted}


def test_estimates_follow_the_tiles() -> None:
    assert settings_of(INTERN) == {} and settings_of(INTERN, 2) == {"max_dynamic_patch": 4}
    # A picture of ten tiles in a row, and its thumbnail.
    assert estimated_tokens(INTERN, WIDE) == 11 * 256
    assert estimated_tokens(INTERN, WIDE, settings=settings_of(INTERN, 2)) == 5 * 256
    assert estimated_tokens(INTERN, WIDE, settings={"dynamic_image_size": False}) == 256
    assert estimated_tokens(INTERN, WIDE, settings={"max_dynamic_patch": 10**9}) is not None


@pytest.mark.parametrize(("takes", "kept"), [(True, {"max_dynamic_patch": 4, "odd": 1}), (False, {"odd": 1})])
async def test_a_server_without_processor_arguments_gets_only_the_users(takes: bool, kept: dict[str, object]) -> None:
    facts = ServerFacts(
        models=(), version="0.32.0", latency_s=0.0, tokenizes=False, takes_ids=False, takes_template=True,
        takes_media_arguments=takes, chat_template="",
    )  # fmt: skip
    bodies = RequestBodies("m", None, facts)  # type: ignore[arg-type]
    sampling = with_parameters(Sampling(), INTERN, ["processor.odd=1"])
    request = make_request(INTERN, [user_turn("What?", [])], sampling)
    given = msgspec.structs.replace(
        request,
        sampling=with_parameters(sampling, INTERN, ["max_dynamic_patch=4"]),
        own_arguments=("max_dynamic_patch",),
    )
    _, body, _ = await bodies.of(given, [])
    assert body[PROCESSOR] == kept
    alone = msgspec.structs.replace(given, own_arguments=("max_dynamic_patch", "odd"))
    assert (PROCESSOR in (await bodies.of(alone, []))[1]) is takes


def of(settings: ChatSettings) -> dict[str, object]:
    return processor_arguments(settings.sampling, {})


def test_each_family_keeps_its_own_arguments() -> None:
    def switched(settings: ChatSettings, family: Family, **defaults: object) -> ChatSettings:
        return settings.for_family(family, defaults)

    typed = with_parameters(Sampling(), QWEN, ["max_pixels=50176", "stop=END", "temperature=0.5"])
    first = switched(ChatSettings("", typed), QWEN)
    assert of(first) == {"max_pixels": 50176}
    phi = switched(first, PHI)
    assert of(phi) == {} and phi.sampling.stop == ("END",) and phi.sampling.temperature == 0.5
    assert first.changed_to(phi) == "max pixels 50176 → default"
    set_there = msgspec.structs.replace(phi, sampling=with_parameters(phi.sampling, PHI, ["num_crops=4"]))
    back = switched(set_there, QWEN)
    assert of(back) == {"max_pixels": 50176}
    assert of(switched(back, PHI)) == {"num_crops": 4}
    assert of(switched(back, QWEN)) == {"max_pixels": 50176}
    # Of a family that was not loaded before, what the settings file has for its processor.
    assert of(switched(first, INTERN, max_dynamic_patch=2, max_pixels=7, stop="no")) == {"max_dynamic_patch": 2}
    with pytest.raises(VlmtuiError):
        switched(first, INTERN, max_dynamic_patch="two")
