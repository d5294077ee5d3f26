"""Stage by stage: what differs is named at its stage, and at the first one."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import numpy as np
import pytest

from vlmtui.domain.generation import Candidate, MediaSpan, SeenMedium, TokenLogprob
from vlmtui.inspection.pixel_values import Floats, PixelStep, compare_values, read_pixel_values
from vlmtui.inspection.stages import (
    CheckedSide,
    Stage,
    StageOutcome,
    StageResult,
    compare_sides,
    noise_between,
)
from vlmtui.registry.schema import ComparedStage
from vlmtui.session.check.run import CheckResult

IMAGE = 99
WORDS = {1: "<s>", 2: "What", 3: " is", IMAGE: "<image>", 7: "a", 8: "b"}


def logprob(token: int, value: float, **others: float) -> TokenLogprob:
    top = [Candidate(token_id=token, logprob=value)]
    top += [Candidate(token_id=int(name[1:]), logprob=one) for name, one in others.items()]
    return TokenLogprob(token_id=token, logprob=value, top=tuple(top))


def side(folder: Path, name: str = "a") -> CheckedSide:
    """A prompt of 9 tokens with an image of 4, and an answer of two."""
    rng = np.random.default_rng(0)
    path = folder / f"{name}.npy"
    np.save(path, rng.normal(size=(3, 8, 8)).astype(np.float32))
    return CheckedSide(
        text="<s>What<image> is",
        token_ids=(1, 2, IMAGE, IMAGE, IMAGE, IMAGE, 3),
        media=(MediaSpan(modality="image", index=0, offset=2, length=4, tokens=4, resized=(56, 56), grid=(1, 4, 4)),),
        seen=(SeenMedium(modality="image", index=0, values=(str(path),)),),
        answer_ids=(7, 8),
        answer="ab",
        logprobs=(logprob(7, -0.5, t8=-1.0), logprob(8, -0.1, t7=-3.0)),
        noise=0.01,
        dtype="float32",
        is_answered=True,
        words=WORDS,
    )


def compare(ours: CheckedSide, theirs: CheckedSide) -> list[StageResult]:
    return compare_sides(ours, theirs)


def difference(ours: CheckedSide, theirs: CheckedSide) -> StageResult:
    """The first stage that differs."""
    found = CheckResult(stages=tuple(compare(ours, theirs))).first
    assert found is not None
    return found


def first(ours: CheckedSide, theirs: CheckedSide) -> Stage | None:
    found = CheckResult(stages=tuple(compare(ours, theirs))).first
    return found.stage if found is not None else None


def test_equal_sides_are_the_same_at_every_stage(tmp_path: Path) -> None:
    found = compare(side(tmp_path), side(tmp_path, "b"))
    assert [one.stage for one in found] == list(Stage)
    assert {one.outcome for one in found} == {StageOutcome.SAME}


def test_a_missing_newline_is_found_in_the_text_though_the_ids_differ_too(tmp_path: Path) -> None:
    sound = side(tmp_path)
    broken = msgspec.structs.replace(sound, text="<s>What\n<image> is", token_ids=(1, 2, 4, *[IMAGE] * 4, 3))
    found = difference(broken, sound)
    assert found.stage is Stage.TEXT and "\\n" in found.message


def test_an_additional_text_token_is_not_an_image_token(tmp_path: Path) -> None:
    sound = side(tmp_path)
    span = msgspec.structs.replace(sound.media[0], offset=3)
    assert first(msgspec.structs.replace(sound, token_ids=(1, *sound.token_ids), media=(span,)), sound) is Stage.TOKENS


def test_an_additional_image_token_is_found(tmp_path: Path) -> None:
    sound = side(tmp_path)
    span = msgspec.structs.replace(sound.media[0], length=5, tokens=5)
    broken = msgspec.structs.replace(sound, token_ids=(1, 2, *[IMAGE] * 5, 3), media=(span,))
    found = difference(broken, sound)
    assert (found.stage, found.message) == (Stage.PLACES, "image 1 takes 5 tokens, and 4")


def test_tokens_around_an_image_may_belong_to_image_or_text(tmp_path: Path) -> None:
    """vLLM counts the tokens around an image to it, Transformers does not."""
    sound = side(tmp_path)
    wider = msgspec.structs.replace(sound.media[0], offset=1, length=6)
    assert first(msgspec.structs.replace(sound, media=(wider,)), sound) is None


def test_a_side_without_image_places_is_compared_by_all_ids(tmp_path: Path) -> None:
    sound = side(tmp_path)
    silent = msgspec.structs.replace(sound, media=())
    assert first(sound, silent) is None
    assert first(sound, msgspec.structs.replace(silent, token_ids=(*sound.token_ids, IMAGE))) is Stage.TOKENS


def test_row_ends_within_an_image_may_be_counted_to_it(tmp_path: Path) -> None:
    """Transformers counts Pixtral's row ends as image tokens, vLLM does not."""
    ids = (1, 2, IMAGE, IMAGE, 98, IMAGE, IMAGE, 98, 3)
    spans = [MediaSpan(modality="image", index=0, offset=2, length=6, tokens=count) for count in (4, 6)]
    ours, theirs = (msgspec.structs.replace(side(tmp_path), token_ids=ids, media=(span,)) for span in spans)
    assert first(ours, theirs) is None


def test_another_grid_with_equal_token_count_is_found_in_the_pixels(tmp_path: Path) -> None:
    sound = side(tmp_path)
    span = msgspec.structs.replace(sound.media[0], grid=(1, 2, 8), resized=(112, 28))
    found = difference(msgspec.structs.replace(sound, media=(span,)), sound)
    assert (found.stage, found.step) == (Stage.PIXELS, PixelStep.SIZE)


def test_an_unreadable_tensor_is_not_compared(tmp_path: Path) -> None:
    sound = side(tmp_path)
    empty = msgspec.structs.replace(sound, seen=(SeenMedium(modality="image", index=0),))
    stages = {one.stage: one.outcome for one in compare(empty, sound)}
    assert stages[Stage.PIXELS] is StageOutcome.UNKNOWN


def test_a_difference_of_log_probabilities_is_measured_in_noise(tmp_path: Path) -> None:
    sound = side(tmp_path)
    broken = msgspec.structs.replace(sound, logprobs=(logprob(7, -0.5, t8=-1.3), sound.logprobs[1]))
    found = difference(broken, sound)
    assert found.stage is Stage.LOGPROBS
    assert found.largest == pytest.approx(0.3) and found.limit == 0.01
    assert found.message == "0.3 apart at 'b' (8) of token 0, 30 × the noise of 0.01"


def test_a_difference_within_the_noise_of_either_side_is_none(tmp_path: Path) -> None:
    sound = side(tmp_path)
    near = msgspec.structs.replace(sound, logprobs=(logprob(7, -0.509, t8=-1.0), sound.logprobs[1]))
    quiet = msgspec.structs.replace(sound, noise=0.001)
    assert first(near, quiet) is None and first(quiet, near) is None
    assert first(msgspec.structs.replace(near, noise=0.001), quiet) is Stage.LOGPROBS


@pytest.mark.parametrize(("dtype", "apart"), [("float32", 5e-5), ("float16", 7e-3), ("bfloat16", 0.0145), ("", 0.0145)])
def test_without_noise_the_rounding_of_the_number_format_is_allowed(tmp_path: Path, dtype: str, apart: float) -> None:
    sound = msgspec.structs.replace(side(tmp_path), noise=None, dtype=dtype)
    for factor, stage in ((1, None), (1.2, Stage.LOGPROBS)):
        other = logprob(7, -0.5 - factor * apart, t8=-1.0)
        assert first(msgspec.structs.replace(sound, logprobs=(other, sound.logprobs[1])), sound) is stage


def test_the_coarser_number_format_counts(tmp_path: Path) -> None:
    sound = msgspec.structs.replace(side(tmp_path), noise=None)
    coarse = msgspec.structs.replace(sound, dtype="bfloat16", logprobs=(logprob(7, -0.507, t8=-1.0), sound.logprobs[1]))
    assert first(coarse, sound) is None


def test_fixed_tokens_are_compared_although_the_answers_part(tmp_path: Path) -> None:
    sound = side(tmp_path)
    fixed = msgspec.structs.replace(sound, fixed=sound.logprobs)
    parted = msgspec.structs.replace(
        fixed, answer_ids=(5, 5), logprobs=(logprob(5, -0.1),), fixed=(sound.logprobs[0], logprob(8, -0.3, t7=-3.0))
    )
    found = difference(parted, fixed)
    assert found.stage is Stage.LOGPROBS and "of token 1" in found.message


def test_answers_may_part_at_equally_likely_tokens(tmp_path: Path) -> None:
    sound = side(tmp_path)
    tied = msgspec.structs.replace(sound, logprobs=(sound.logprobs[0], logprob(8, -0.3, t7=-0.305)))
    other = msgspec.structs.replace(
        tied, answer_ids=(7, 7), logprobs=(sound.logprobs[0], logprob(7, -0.302, t8=-0.303))
    )
    assert first(other, tied) is None
    far = msgspec.structs.replace(sound, answer_ids=(7, 7), answer="aa")
    assert first(far, sound) is Stage.ANSWER


def test_drifting_log_probabilities_are_found_before_the_tokens(tmp_path: Path) -> None:
    sound = side(tmp_path)
    drifted = msgspec.structs.replace(sound, logprobs=(sound.logprobs[0], logprob(8, -0.2, t7=-3.0)))
    assert first(drifted, sound) is Stage.LOGPROBS


def test_a_failed_engine_is_compared_up_to_its_failure(tmp_path: Path) -> None:
    sound = side(tmp_path)
    failed = msgspec.structs.replace(sound, answer_ids=(), logprobs=(), is_answered=False, error="out of memory")
    assert [one.stage for one in compare(failed, sound)] == [Stage.TEXT, Stage.TOKENS, Stage.PLACES, Stage.PIXELS]


def test_without_log_probabilities_the_answers_are_compared(tmp_path: Path) -> None:
    sound = side(tmp_path)
    silent = msgspec.structs.replace(sound, logprobs=())
    told = {one.stage: one.outcome for one in compare(silent, sound)}
    assert (told[Stage.LOGPROBS], told[Stage.ANSWER]) == (StageOutcome.UNKNOWN, StageOutcome.SAME)


@pytest.mark.parametrize(
    ("tokens", "outcome", "message"),
    [
        (7, StageOutcome.COUNTS, "7 tokens in the prompt; a side tells no more"),
        (3, StageOutcome.DIFFERS, "3 tokens in the prompt, and 7 (image 1: 4)"),
    ],
)
def test_a_server_that_counts_tokens_alone_is_judged_by_the_count(
    tmp_path: Path, tokens: int, outcome: StageOutcome, message: str
) -> None:
    server = CheckedSide(prompt_tokens=tokens, answer="ab", is_answered=True)
    found = compare(server, side(tmp_path))[0]
    assert (found.stage, found.outcome, found.message) == (Stage.PLACES, outcome, message)
    text = msgspec.structs.replace(side(tmp_path), media=())
    assert compare(server, text)[0].stage is Stage.TOKENS


def test_unknown_places_are_compared_by_token_counts(tmp_path: Path) -> None:
    """Return the fields as a golden prompt has them."""
    sound = side(tmp_path)
    recorded = msgspec.structs.replace(sound.media[0], offset=0, length=0)
    golden = CheckedSide(text=sound.text, token_ids=sound.token_ids, media=(recorded,))
    assert first(sound, golden) is None
    fewer = msgspec.structs.replace(golden, media=(msgspec.structs.replace(recorded, tokens=3),))
    assert difference(sound, fewer).message == "image 1 takes 4 tokens, and 3"
    larger = msgspec.structs.replace(golden, media=(msgspec.structs.replace(recorded, resized=(112, 56)),))
    assert difference(sound, larger).message == "image 1: size 56×56 and 112×56"


def test_a_recorded_answer_must_have_equal_tokens() -> None:
    then = CheckedSide(answer="ab", answer_ids=(7, 8), is_answered=True, words=WORDS)
    now = msgspec.structs.replace(then, answer="aa", answer_ids=(7, 7), logprobs=(logprob(7, -0.1), logprob(7, -0.2)))
    found = difference(now, then)
    assert found.stage is Stage.ANSWER
    assert found.message == "from token 1 on: 'a' (7) (log-probability −0.20) and 'b' (8)"
    assert compare(then, then)[-1].outcome is StageOutcome.SAME
    words = msgspec.structs.replace(now, answer_ids=())
    assert "from character 1 on: 'a' and 'b'" in difference(words, then).message
    assert compare(msgspec.structs.replace(now, is_answered=False), then) == []
    torn = msgspec.structs.replace(then, answer="ab\N{REPLACEMENT CHARACTER}")
    assert first(torn, then) is None


def test_noise_is_the_largest_difference_up_to_the_first_other_token() -> None:
    one = (logprob(7, -0.5, t8=-2.0), logprob(8, -0.1))
    assert noise_between(one, one) == 0.0
    assert noise_between(one, (logprob(7, -0.6, t8=-2.3), logprob(8, -0.9))) == pytest.approx(0.8)
    assert noise_between(one, (logprob(8, -0.6, t7=-0.7), logprob(8, -0.9))) == pytest.approx(1.4)
    assert noise_between(one, ()) is None


def test_an_unreported_token_counts_as_the_least_likely() -> None:
    assert noise_between([logprob(7, -0.5, t8=-2.0)], [logprob(7, -0.5, t5=-0.9)]) == pytest.approx(1.1)


def pictures(kind: str) -> tuple[Floats, Floats]:
    """Another processor's values of a picture, and the reference's."""
    rng = np.random.default_rng(1)
    levels = rng.integers(0, 256, size=(3, 32, 32)).astype(np.float32)
    mean, std = (np.asarray(one, np.float32).reshape(3, 1, 1) for one in ((0.48, 0.46, 0.41), (0.27, 0.26, 0.28)))
    sound = (levels / 255 - mean) / std
    more = np.clip(levels + rng.integers(0, 2, levels.shape), 0, 255)
    others = {
        "same": sound,
        "levels": levels,
        "swapped": (levels / 255 - std) / mean,
        "red and blue": sound[::-1].copy(),
        "one level": (more / 255 - mean) / std,
        "blurred": (sound + np.roll(sound, 1, axis=2)) / 2,
        "smaller": sound[:, :16],
    }
    return np.asarray(others[kind], np.float32), np.asarray(sound, np.float32)


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("same", None),
        ("levels", PixelStep.LEVELS),
        ("swapped", PixelStep.NORMALISATION),
        ("red and blue", PixelStep.CHANNELS),
        ("one level", PixelStep.ROUNDING),
        ("blurred", PixelStep.RESAMPLING),
        ("smaller", PixelStep.SIZE),
    ],
)
def test_pixels_name_the_step_that_differs(kind: str, step: PixelStep | None) -> None:
    ours, theirs = pictures(kind)
    found = compare_values([ours], [theirs], 1e-3)
    assert found.step is step
    assert (found.largest > 0) is (step is not None)


def test_another_number_of_tiles_differs() -> None:
    sound, _ = pictures("same")
    assert compare_values([sound, sound], [sound], 1e-3).step is PixelStep.COUNT


def test_nan_values_always_differ() -> None:
    sound, _ = pictures("same")
    broken = sound.copy()
    broken[0, 0, 0] = np.nan
    assert compare_values([broken], [sound], 1e-3).step is not None


def test_a_broken_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "values.npy"
    path.write_bytes(b"\x93NUMPY broken")
    with pytest.raises(Exception, match="can't be read"):
        read_pixel_values(str(path))


def test_known_differences_name_existing_stages() -> None:
    assert {*get_args(ComparedStage)} <= {stage.value for stage in Stage}
