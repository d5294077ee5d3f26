"""The parts of the Transformers backend that need no model: choosing tokens, reading them, and what stands apart."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.support.engine_site import watch_for_torchvision
from tests.zoo.recipes.transformers_only import mllama_config
from vlmtui.domain.engine import FITTED, LoadSpec, LoadStage
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.backends.transformers.engine import BACKEND, AnswerReader
from vlmtui.worker.backends.transformers.loading import cross_attention_note, read_arguments, repair_positions
from vlmtui.worker.backends.transformers.sampling import (
    Logprobs,
    SamplingPlan,
    TokenChooser,
    plan_sampling,
)
from vlmtui.worker.hf.media_items import MediaItem
from vlmtui.worker.hf.prompt_inputs import PromptBuilder, runs_of

torch = pytest.importorskip("torch")
EOS = 7


class ByteTokenizer:
    """A token is a byte; `eos` is special."""

    eos_token_id = EOS

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return bytes(one for one in ids if one != EOS).decode(errors="replace")

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return list(text.encode())

    def get_vocab(self) -> dict[str, int]:
        return {"<eos>": EOS}


def plan(**given: Any) -> SamplingPlan:
    logprobs = given.pop("logprobs", None)
    return plan_sampling(Sampling(**given), logprobs, defaults={}, eos_ids=(EOS,), tokenizer=ByteTokenizer(), room=1000)


def choose(scores: Sequence[float], count: int = 1, prompt: Sequence[int] = (), **given: Any) -> list[int]:
    """The tokens that are chosen from the same scores, one after another."""
    taken: list[int] = []

    def take(token: int, logprobs: Logprobs | None) -> bool:
        taken.append(token)
        return len(taken) == count

    chooser = TokenChooser(plan(**given), prompt, take)
    given_scores = torch.tensor([list(scores)], dtype=torch.float32)
    for _ in range(count):
        only = chooser(None, given_scores.clone())
        assert int(only.argmax()) == taken[-1]
        assert int(torch.isfinite(only).sum()) == 1
    assert chooser.should_stop(torch.zeros(1, 1), None).all()
    return taken


def test_the_likeliest_token_is_taken_and_a_seed_repeats_a_draw() -> None:
    flat = [0.0] * 50
    assert choose([0, 3, 1, 2]) == [1]
    one = choose(flat, 20, temperature=1.0, seed=5)
    torch.manual_seed(0)
    assert choose(flat, 20, temperature=1.0, seed=5) == one
    assert choose(flat, 20, temperature=1.0, seed=6) != one
    assert len(set(one)) > 5


def test_a_request_leaves_the_random_numbers_of_others_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    choose([0.0] * 50, 20, temperature=1.0, seed=5)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("given", "possible"),
    [
        ({"top_k": 2}, {3, 4}),
        ({"top_p": 0.6}, {4}),
        ({"top_p": 0.7}, {3, 4}),
        ({"min_p": 0.3}, {3, 4}),
        ({"extra": {"allowed_token_ids": [0, 2]}}, {0, 2}),
        ({"extra": {"logit_bias": {0: 30.0}}}, {0}),
        ({"temperature": 0.01}, {4}),
    ],
)
def test_excluded_tokens_are_never_sampled(given: dict[str, Any], possible: set[int]) -> None:
    scores = [0.0, 0.5, 1.0, 3.0, 4.0]
    assert set(choose(scores, 200, **{"temperature": 1.0, "seed": 3, **given})) == possible


def test_penalties_apply_to_generated_tokens() -> None:
    assert choose([2.0, 1.9, 0.0], 2, presence_penalty=1.0) == [0, 1]
    assert choose([2.0, 1.5, 0.0], 4, frequency_penalty=0.3) == [0, 0, 1, 0]
    assert choose([2.0, 1.5, 0.0], 1, prompt=[0], repetition_penalty=2.0) == [1]
    assert choose([-1.0, -1.5, -9.0], 1, prompt=[0], repetition_penalty=2.0) == [1]


def test_log_probabilities_come_from_the_models_scores() -> None:
    found: list[Logprobs | None] = []

    def take(token: int, logprobs: Logprobs | None) -> bool:
        found.append(logprobs)
        return True

    scores = torch.tensor([[1.0, 3.0, 2.0]])
    TokenChooser(plan(logprobs=2, temperature=0.5, seed=1, top_k=1), (), take)(None, scores.clone())
    (logprobs,) = found
    assert logprobs is not None
    expected = scores[0].log_softmax(-1)
    assert {token: pytest.approx(float(expected[token])) for token in (1, 2)} == {
        token: one.logprob for token, one in logprobs.items()
    }


def read(data: bytes, **given: Any) -> tuple[AnswerReader, list[str]]:
    reader, texts = AnswerReader(plan(**given), ByteTokenizer(), b"prompt: "), []
    for byte in data:
        texts.append(reader.take(byte, None).text)
        if reader.reason is not None:
            break
    return reader, texts


def test_text_comes_in_whole_characters() -> None:
    _, texts = read("a–é".encode())
    assert texts == ["a", "", "", "–", "", "é"]


def test_a_stop_string_ends_the_answer_and_is_no_part_of_it() -> None:
    reader, texts = read(b"one STOP two", stop=("STOP",))
    assert "".join(texts) == "one "
    assert (reader.reason, reader.stop) == ("stop", "STOP")
    kept, texts = read(b"one STOP two", stop=("STOP",), extra={"include_stop_str_in_output": True})
    assert "".join(texts) == "one STOP"
    half, texts = read(b"one STO", stop=("STOP",), max_tokens=7)
    assert ("".join(texts), half.reason) == ("one STO", "length")
    assert kept.stop == "STOP"


def test_a_stop_token_ends_the_answer_unless_it_is_to_be_ignored() -> None:
    reader, texts = read(b"ab\x07cd")
    assert ("".join(texts), reader.reason, reader.stop_token) == ("ab", "stop", EOS)
    reader, texts = read(b"ab\x07cd", max_tokens=5, extra={"ignore_eos": True})
    assert ("".join(texts), reader.reason) == ("abcd", "length")
    named = plan(stop_tokens=("<eos>", "<unknown>", "@eos_token"), stop_token_ids=(65,))
    assert named.stop_ids == {EOS, 65}


def test_the_settings_are_resolved_and_reported() -> None:
    drawn = plan(temperature=0.7, max_tokens=None)
    assert drawn.used.seed is not None
    assert (drawn.used.max_tokens, drawn.used.top_p, drawn.used.temperature) == (1000, 1.0, 0.7)
    assert plan(temperature=0, seed=3).used.seed is None
    long = "a" * 12_000_000
    for wrong in (
        {"extra": {"bad_words": [long]}},
        {"stop": (long,)},
        {"extra": {"min_tokes": 1}},
        {"temperature": 7.0},
        {"logprobs": 21},
        {"extra": {"bad_words": 3}},
    ):
        with pytest.raises(VlmtuiError) as caught:
            plan(**wrong)
        assert caught.value.kind is ErrorKind.BAD_INPUT


def test_engine_arguments_are_read_strictly() -> None:
    spec = LoadSpec(
        model="m", name="n", engine_args={"max_model_len": 64, "limit_mm_per_prompt": {"image": {"count": 2}}}
    )
    assert read_arguments(spec).limit_mm_per_prompt == {"image": 2}
    fitted = msgspec.structs.replace(spec, engine_args={"max_model_len": FITTED})
    assert read_arguments(fitted).max_model_len is None
    for wrong in ({"max_model_length": 4}, {"dtype": "int3"}, {"max_model_len": 0}):
        with pytest.raises(VlmtuiError) as caught:
            read_arguments(msgspec.structs.replace(spec, engine_args=wrong))
        assert caught.value.kind is ErrorKind.BAD_ENGINE_ARGUMENT
        assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", ErrorKind.OUT_OF_MEMORY),
        ("model.safetensors does not appear to have weights: SafetensorError", ErrorKind.WEIGHTS_MISSING),
        ("We couldn't connect to 'https://huggingface.co' to load the files", ErrorKind.NO_NETWORK),
        ("Access to model x/y is restricted", ErrorKind.GATED_REPO),
        ("Unrecognized configuration class <class 'X'>", ErrorKind.ARCHITECTURE_UNSUPPORTED),
        ("This modeling file requires the following packages: flash_attn", ErrorKind.BAD_ENGINE_ARGUMENT),
        ("something else", ErrorKind.INTERNAL),
    ],
)
def test_a_failed_load_has_a_remedy(text: str, kind: ErrorKind) -> None:
    found = BACKEND.explain_load(RuntimeError(text), [], name="m")
    assert found.kind is kind
    assert found.hint
    assert BACKEND.explain_request(ValueError("The number of image tokens in each text (0)"), ()).kind is (
        ErrorKind.PLACEHOLDER_MISMATCH
    )


def test_progress_is_read_from_the_bars() -> None:
    step = BACKEND.read_progress("Loading weights:  40%|████      | 40/93 [00:00<00:00]")
    assert step is not None
    assert (step.stage, step.fraction) == (LoadStage.WEIGHTS, 0.4)
    assert BACKEND.read_progress("nothing") is None


def test_runs_of_positions() -> None:
    assert runs_of([3, 4, 5, 9, 10, 20]) == [[3, 4, 5], [9, 10], [20]]
    assert runs_of([]) == []


def test_a_model_without_image_tokens_is_recognised() -> None:
    watch_for_torchvision()
    from transformers import LlavaConfig

    assert "by cross-attention: each takes one token" in cross_attention_note(mllama_config(263))
    assert cross_attention_note(LlavaConfig()) == ""


def test_only_paddleocrs_positions_are_repaired_and_only_once() -> None:
    class PaddleOCRVisionEmbeddings:
        interpolation_align_corners = True

    class Qwen3VLVisionModel(PaddleOCRVisionEmbeddings):
        pass

    modules = [PaddleOCRVisionEmbeddings(), Qwen3VLVisionModel()]
    model = SimpleNamespace(modules=lambda: modules)
    assert repair_positions(model)
    assert [one.interpolation_align_corners for one in modules] == [False, True]
    assert not repair_positions(model)


def test_llama_4s_image_is_its_patches_not_its_placeholder() -> None:
    class Processor:
        img_patch_token, image_token_id = "<|patch|>", 1

        def __call__(self, text: list[str], images: list[object], **given: object) -> dict[str, object]:
            return {"input_ids": torch.tensor([[9, 1, 2, 2, 2, 2, 9]])}

    builder = PromptBuilder(Processor(), None, SimpleNamespace(image_token_index=2))
    (span,) = builder.build("<|image|>", [MediaItem("image", None, "")], special_tokens=False).media
    assert (span.offset, span.tokens) == (2, 4)
