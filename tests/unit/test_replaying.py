"""Answers of several engines held against the record, or against the first engine."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tests.support.scripted_engine import scripted_info
from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Media, Text, Turn
from vlmtui.domain.generation import MediaSpan
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.inspection.build import fingerprint_of
from vlmtui.registry.loader import Registry
from vlmtui.session.lanes import lane_spec
from vlmtui.session.replaying import KnownAnswer, Pixels, ReplayCase, ReplayResult, changed_fingerprint, results_of

PICTURE = Attachment(
    modality="image",
    path="/x.png",
    name="x.png",
    source="",
    sha256="a" * 64,
    width=64,
    height=64,
    size_bytes=1,
    format="PNG",
)
SPAN = MediaSpan(modality="image", index=0, offset=1, length=16, tokens=16, resized=(112, 112), grid=(1, 8, 8))
RECORDED = KnownAnswer(
    prompt_token_ids=(1, 2, 3), media=(SPAN,), answer="red", answer_token_ids=(7, 8), logprobs=(-0.1, -0.2),
    is_complete=True,
)  # fmt: skip


def case(recorded: KnownAnswer = RECORDED, *, picture: bool = True) -> ReplayCase:
    parts = (Media(PICTURE), Text("What?")) if picture else (Text("What?"),)
    spec = lane_spec(Registry.bundled()["shapes"], [Turn("user", parts)], Sampling())
    return ReplayCase(file="a.json", title="chat", spec=spec, recorded=recorded)


def results(answers: Mapping[str, KnownAnswer | VlmtuiError], of: ReplayCase | None = None) -> list[ReplayResult]:
    return list(results_of([of or case()], {name: [known] for name, known in answers.items()}))


def changed(**values: object) -> KnownAnswer:
    return msgspec.structs.replace(RECORDED, **values)


def test_the_same_prompt_pixels_and_answer_are_the_same() -> None:
    here, there = results({"here": changed(pixels=("p",)), "there": changed(pixels=("p",))})
    assert here.is_same and there.is_same
    assert (here.pixels, there.pixels) == (Pixels.SAME_SIZES, Pixels.SAME)


def test_the_first_token_that_differs_is_told_with_its_log_probabilities() -> None:
    (found,) = results({"here": changed(answer="rot", answer_token_ids=(7, 9, 10), logprobs=(-0.1, -3.0, -1.0))})
    assert not found.is_same and not found.answer_same
    assert (found.first_divergence, found.logprob, found.base_logprob) == (1, -3.0, -0.2)


def test_another_prompt_and_other_pixels_are_told_apart() -> None:
    (prompt,) = results({"here": changed(prompt_token_ids=(1, 5, 3))})
    assert prompt.prompt_divergence == 1 and not prompt.is_same and prompt.answer_same
    larger = msgspec.structs.replace(SPAN, resized=(224, 224))
    (sizes,) = results({"here": changed(media=(larger,))})
    assert sizes.pixels is Pixels.DIFFERENT and not sizes.is_same
    _, seen = results({"here": changed(pixels=("p",)), "there": changed(pixels=("q",))})
    assert seen.pixels is Pixels.DIFFERENT and not seen.is_same


def test_without_pictures_or_spans_the_pixels_are_not_judged() -> None:
    (none,) = results({"here": changed(media=())}, case(picture=False))
    (unknown,) = results({"here": changed(media=())})
    assert (none.pixels, unknown.pixels) == (Pixels.NONE, Pixels.UNKNOWN)
    assert none.is_same and unknown.is_same


def test_a_golden_prompt_has_the_first_engines_answer_as_its_base() -> None:
    golden = case(KnownAnswer(prompt_token_ids=(1, 2, 3), media=(SPAN,)))
    here, there = results({"here": RECORDED, "there": changed(answer="blue", answer_token_ids=(9,))}, golden)
    assert here.is_same and not there.is_same and there.first_divergence == 0


def test_an_engine_that_failed_is_no_base() -> None:
    golden = case(KnownAnswer(prompt_token_ids=(1, 2, 3)))
    failed, here = results({"gone": bad_input("No such server."), "here": RECORDED}, golden)
    assert "No such server." in failed.error and not failed.is_same
    assert here.is_same


def test_a_fingerprint_says_what_changed() -> None:
    then = fingerprint_of(scripted_info())
    now = msgspec.structs.replace(then, engine_version="0.33.0", engine_args={"max_model_len": 512, "dtype": "half"})
    assert changed_fingerprint(then, now) == {
        "engine_version": ("0.32.0", "0.33.0"),
        "engine_args.dtype": (None, "half"),
        "engine_args.max_model_len": (4096, 512),
    }
    assert changed_fingerprint(then, then) == {}
    elsewhere = msgspec.structs.replace(now, backend="pinned", engine_args={"max_model_len": 512, "block_size": 32})
    assert changed_fingerprint(then, elsewhere) == {
        "backend": ("vllm", "pinned"),
        "engine_version": ("0.32.0", "0.33.0"),
        "engine_args.max_model_len": (4096, 512),
    }
