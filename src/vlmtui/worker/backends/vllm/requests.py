"""Requests for vLLM: sampling parameters, scoring an answer, checking placeholders, and writing the processed images.

Imports vLLM only inside functions.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from vlmtui.domain.conversation import Modality
from vlmtui.domain.dials import PROCESSOR, STRUCTURED
from vlmtui.domain.generation import Delta, RenderRequest, ScoreRequest, SeenMedium, View, Vocabulary
from vlmtui.domain.sampling import PARAMETERS, Sampling, check_texts
from vlmtui.domain.template import TEMPLATE
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.worker.hf.failures import mismatch
from vlmtui.worker.hf.media_items import CHUNKS, MODALITIES, VISUAL, MediaItem, of_modality
from vlmtui.worker.hf.seen_pixels import (
    BLACK,
    WHITE,
    Normalisation,
    blank_items,
    measured,
    normalisation_of,
    write_seen,
)
from vlmtui.worker.hf.vocabulary import VocabularyReader, stop_token_id, token_logprob

_SEEDS = 2**31
_FURTHER = (
    "min_tokens", "ignore_eos", "bad_words", "logit_bias", "allowed_token_ids", "include_stop_str_in_output",
    "thinking_token_budget",
)  # fmt: skip
"""Fields of SamplingParams that change the answer and are not in `PARAMETERS`."""
_ID_FIELDS = {
    "image": ("image_token_id", "image_token_index"),
    "video": ("video_token_id", "video_token_index"),
    "audio": ("audio_token_id", "audio_token_index"),
}
"""Config fields that hold the id of the image, video or audio token."""


def sampling_parameters(
    sampling: Sampling,
    logprobs: int | None,
    *,
    defaults: Mapping[str, Any],
    tokenizer: Any,
    logprobs_max: int,
    final_only: bool = False,
) -> Any:
    """Return SamplingParams: the model's defaults, overridden by the request. Without a seed it draws a random one, so
    that the answer can be repeated. `logprobs_max`: the engine's limit (-1: none). Raises VlmtuiError(BAD_INPUT)."""
    from vllm import SamplingParams
    from vllm.exceptions import VLLMError
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    check_texts(sampling)
    _check_logprobs(logprobs, logprobs_max)
    extra = {name: value for name, value in sampling.extra.items() if name not in (PROCESSOR, TEMPLATE)}
    structured = extra.pop(STRUCTURED, None)
    chosen = {
        **extra,
        **sampling.numbers(),
        "logprobs": logprobs if logprobs is not None else sampling.extra.get("logprobs"),
    }
    stops = [stop_token_id(token, tokenizer) for token in sampling.stop_tokens]
    arguments = {
        **defaults,
        **{name: value for name, value in chosen.items() if value is not None},
        "max_tokens": sampling.max_tokens,
        "stop": list(sampling.stop) or None,
        "stop_token_ids": [*sampling.stop_token_ids, *(stop for stop in stops if stop is not None)] or None,
        "skip_special_tokens": sampling.skip_special_tokens,
        "output_kind": RequestOutputKind.FINAL_ONLY if final_only else RequestOutputKind.DELTA,
    }
    if arguments.get("seed") is None:
        arguments["seed"] = random.randrange(_SEEDS)
    try:
        if isinstance(biases := extra.get("logit_bias"), dict):
            arguments["logit_bias"] = {int(token): bias for token, bias in biases.items()}
        if isinstance(structured, dict):
            arguments["structured_outputs"] = StructuredOutputsParams(**structured)
        return SamplingParams(**arguments)
    except (TypeError, ValueError, VLLMError) as error:
        message = "The engine rejects the sampling parameters."
        raise bad_input(message, detail=str(error), hint="Correct them in the settings.") from error


def structure_of(sampling: Sampling) -> str:
    """Return the kind of structure that an answer must have (`regex`, `json`); empty if none."""
    wanted = sampling.extra.get(STRUCTURED)
    return next(iter(wanted), "") if isinstance(wanted, dict) else ""


def aborted(reason: str | None, sampling: Sampling, first: str) -> VlmtuiError:
    """Return the error of an answer that vLLM aborted. `first`: the kind of structure of the engine's first structured
    answer; empty: none yet.

    vLLM 0.32 has several libraries for structured answers, with different abilities. The first request for one decides
    which the engine core uses from then on (`StructuredOutputManager.grammar_init`), while each later request is
    checked against all of them."""
    detail = f"finish reason: {reason}"
    wanted = structure_of(sampling)
    if not wanted:
        return VlmtuiError(ErrorKind.INTERNAL, "The engine aborted the answer.", detail=detail, hint="Try again.")
    message = f"The engine can't write an answer with this {wanted}."
    if not first:
        return bad_input(message, detail=detail, hint=f"Simplify the {wanted}.")
    cause = f"Its first structured answer ({first}) chose vLLM's library for all later ones."
    hint = (
        f"Restart the engine and send this message first, or simplify the {wanted}. The engine argument "
        'structured_outputs_config = {backend = "guidance"} chooses the library with the most abilities.'
    )
    return bad_input(f"{message} {cause}", detail=detail, hint=hint)


def used_sampling(parameters: Any, *, room: int, given: Sampling | None = None) -> Sampling:
    """Return the sampling that vLLM used, with a value for every parameter. `parameters`: vLLM's SamplingParams.

    `room`: the number of tokens left in the context. `given`: the requested sampling. Its structured output, processor
    arguments and template variables are copied, because `parameters` does not have them in this form.
    """
    is_greedy = parameters.temperature == 0
    numbers = {name: getattr(parameters, name) for name in PARAMETERS}
    if is_greedy:
        numbers["seed"] = None
    elif numbers["top_k"] == -1:
        numbers["top_k"] = 0
    if numbers["max_tokens"] is None:
        numbers["max_tokens"] = room
    return Sampling(
        **numbers,
        stop=tuple(parameters.stop or ()),
        stop_token_ids=tuple(parameters.stop_token_ids or ()),
        skip_special_tokens=parameters.skip_special_tokens,
        extra={
            **{name: value for name in _FURTHER if (value := getattr(parameters, name, None))},
            **{
                name: given.extra[name]
                for name in (STRUCTURED, PROCESSOR, TEMPLATE)
                if given is not None and name in given.extra
            },
        },
    )


def _check_logprobs(wanted: int | None, most: int) -> None:
    if wanted is None:
        return
    if wanted < 0:
        raise bad_input(f"logprobs must be 0 or more, not {wanted}.")
    if 0 <= most < wanted:
        raise bad_input(
            f"logprobs = {wanted} exceeds this engine's limit of {most}.",
            hint=f"Use {most} or fewer, or load the model with a higher max_logprobs.",
        )


def scoring_parameters(logprobs: int | None) -> Any:
    """Return SamplingParams for scoring a prompt. vLLM must generate at least one token, which is dropped."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0, max_tokens=1, prompt_logprobs=logprobs or 0, output_kind=RequestOutputKind.FINAL_ONLY
    )


def with_answer(rendered: Any, request: ScoreRequest) -> Any:
    """Return the rendered prompt, followed by the tokens of the answer to score."""
    return {**rendered, "prompt_token_ids": [*rendered["prompt_token_ids"], *request.tokens]}


def scored_delta(
    request: ScoreRequest,
    prompt_logprobs: Sequence[Mapping[int, Any] | None],
    vocabulary: VocabularyReader,
    known: Vocabulary,
) -> Delta:
    """Return the scored answer's tokens with their log-probabilities.

    These are the last of vLLM's `prompt_logprobs`, because the answer was sent as the end of the prompt. `known`: token
    texts that the app already has.
    """
    found = prompt_logprobs[len(prompt_logprobs) - len(request.tokens) :]
    scores = tuple(
        token_logprob(token, at, request.logprobs or 0)
        for token, at in zip(request.tokens, found, strict=True)
        if at is not None
    )
    named = dict.fromkeys((*request.tokens, *(other.token_id for one in scores for other in one.top)))
    return Delta(
        request_id=request.request_id,
        text=vocabulary.decode(request.tokens),
        tokens=len(scores),
        token_ids=request.tokens,
        vocabulary=vocabulary.entries(token for token in named if token not in known),
        logprobs=scores,
    )


def as_chunks(prompt: dict[str, Any], items: Sequence[MediaItem]) -> dict[str, Any]:
    """Return vLLM's prompt with its images as items of the modality `vision_chunk`, for a model that accepts only this
    modality."""
    images = [item for item in items if item.modality == "image"]
    if not images:
        return prompt
    chunks = [{"type": "image", "image": item.data, "uuid": item.uuid} for item in images]
    uuids = [item.uuid for item in images]
    return prompt | {"multi_modal_data": {CHUNKS: chunks}, "multi_modal_uuids": {CHUNKS: uuids}}


def check_placeholders(rendered: Mapping[str, Any], items: Sequence[MediaItem], config: Any, tokenizer: Any) -> None:
    """Raise VlmtuiError(PLACEHOLDER_MISMATCH) unless every item has a span of tokens, and no media token is outside of
    these spans.

    `rendered`: the engine's input, with `prompt_token_ids`, and `mm_placeholders` by modality. The check is needed
    because vLLM accepts a prompt with too many placeholders, and then answers nonsense or crashes.
    """
    spans: Mapping[str, Sequence[Any]] = rendered.get("mm_placeholders") or {}
    wanted = Counter(item.modality for item in items)
    for modality in MODALITIES:
        found = len(of_modality(spans, modality))
        if found != wanted[modality]:
            raise mismatch(f"The prompt has {found} {modality} placeholders for {wanted[modality]} {modality}s.")
    covered: set[int] = set()
    for group in spans.values():
        for span in group:
            covered.update(range(span.offset, span.offset + span.length))
    for kind, names in _ID_FIELDS.items():
        token = next((value for name in names if isinstance(value := getattr(config, name, None), int)), None)
        if token is None:
            continue
        for position, found_id in enumerate(rendered["prompt_token_ids"]):
            if found_id == token and position not in covered:
                text = tokenizer.decode([token], skip_special_tokens=False)
                message = f"{text} (token {position} of the prompt) does not match any attached {kind}."
                raise mismatch(message)


async def seen_media(
    request: RenderRequest,
    view: View,
    items: list[MediaItem],
    rendered: Mapping[str, Any],
    processor: Any,
    render: Callable[[RenderRequest, list[MediaItem]], Awaitable[Any]],
    by_model: Normalisation | None,
) -> tuple[SeenMedium, ...]:
    """Write every processed image and video frame as the model sees it into the view's folder.

    `rendered`: the engine's input. `render`: makes such an input from a request and other media. `by_model`: see
    `write_seen`. If the processor does not report its normalisation, it is measured on black and white images. Raises
    VlmtuiError if the folder is not private, or a file cannot be written.
    """
    seen = await asyncio.to_thread(_write, request.request_id, view, rendered, (), processor, by_model)
    if all(medium.is_exact for medium in seen):
        return seen
    blank = [await render(request, blank_items(items, level)) for level in (BLACK, WHITE)]
    return await asyncio.to_thread(_write, request.request_id, view, rendered, blank, processor, by_model)


def normalisation_by_model(found: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Normalisation | None:
    """Return how a model normalises levels of 0 to 255, by the factors and offsets of its modules for that; None if it
    has none."""
    if not found:
        return None
    factors, offsets = found[0]
    std = tuple(1 / (255 * factor) for factor in factors)
    return Normalisation(tuple(-offset * one for offset, one in zip(offsets, std, strict=True)), std)


def _write(
    request_id: str,
    view: View,
    rendered: Mapping[str, Any],
    blank: Sequence[Mapping[str, Any]],
    processor: Any,
    by_model: Normalisation | None,
) -> tuple[SeenMedium, ...]:
    seen = []
    for modality in VISUAL:
        blanks = [_data(one, modality) for one in blank]
        places = of_modality(rendered.get("mm_placeholders"), modality)
        how = normalisation_of(processor, modality)
        for index, data in enumerate(_data(rendered, modality)):
            written = write_seen(
                data,
                measured(how, *(one[index] for one in blanks)) if blanks else how,
                by_model,
                modality=modality,
                index=index,
                ranges=_runs(places[index]) if index < len(places) else [],
                view=view,
                request_id=request_id,
            )
            seen.append(written)
    return tuple(seen)


def _data(rendered: Mapping[str, Any], modality: Modality) -> list[dict[str, Any]]:
    """Return the processor's tensors by name, for each attachment of the modality."""
    items = of_modality(rendered.get("mm_kwargs"), modality)
    return [
        {name: element.data for name, element in (item or {}).items() if element.data is not None} for item in items
    ]


def _runs(place: Any) -> list[tuple[int, int]]:
    """Return the offset and length of each run of tokens that the embeddings of one item replace. `place`: vLLM's
    placeholder of the item."""
    mask = getattr(place, "is_embed", None)
    if mask is None:
        return [(place.offset, place.length)]
    runs: list[tuple[int, int]] = []
    for at, is_embed in enumerate(mask.tolist()):
        if is_embed and runs and runs[-1][0] + runs[-1][1] == place.offset + at:
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        elif is_embed:
            runs.append((place.offset + at, 1))
    return runs
