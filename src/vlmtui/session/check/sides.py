"""An engine's results for the cases of a check: prompt, pixels, answer, log-probabilities and their noise."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path

import msgspec

from vlmtui.domain.capabilities import lack, require_capability
from vlmtui.domain.conversation import ChatPrompt, MessagesPrompt, Prompt, RawPrompt, all_attachments, attachments_of
from vlmtui.domain.generation import (
    Finished,
    GenerateRequest,
    RenderRequest,
    Request,
    ScoreRequest,
    TokenLogprob,
    View,
)
from vlmtui.domain.model_reading import FORMS, PromptCase, ReadRequest, RenderCase
from vlmtui.engine.interface import Engine, ModelReader
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.inspection.lint.check import tokenizer_fault
from vlmtui.inspection.lint.subject import in_each_form
from vlmtui.inspection.stages import CheckedSide, noise_between
from vlmtui.paths import private_dir
from vlmtui.registry.estimate import settings_of
from vlmtui.registry.hub_cache import model_folder
from vlmtui.registry.match import Model
from vlmtui.registry.model_files import error_of, file_faults
from vlmtui.registry.schema import Family
from vlmtui.session.check.cases import CheckCase
from vlmtui.session.dials import variables_of
from vlmtui.session.generation import broken_off, whole_answer
from vlmtui.session.lint import download_hint

_TOP = 20
"""Log-probabilities to request for each token: vLLM's default limit."""
_BATCH = 4
"""Fewest requests that are sent together to measure the noise."""


async def sides_by_engine(
    engine: Engine,
    cases: Sequence[CheckCase],
    folder: Path,
    answers: Sequence[tuple[int, ...]] = (),
    *,
    is_asked: bool = True,
) -> list[CheckedSide]:
    """Return an engine's result for each case: prompt, processor outputs (written into `folder`, which gets mode 0700)
    and answer, or the error. The cases run one after the other, since batching changes some engines' numbers; then all
    together, to measure by how much.

    `answers`: the tokens of the base's answer to each case, whose log-probabilities are compared; empty: this engine is
    the base. `is_asked` False: make only the prompts. Raises VlmtuiError if the engine can't make prompts without
    answers."""
    if not is_asked:
        require_capability(engine.info, "render_only")
    private = private_dir(folder)
    sides = [await _side(engine, case.request, private, is_asked=is_asked) for case in cases]
    return await _with_noise(engine, cases, sides, answers or [()] * len(cases)) if is_asked else sides


async def _with_noise(
    engine: Engine, cases: Sequence[CheckCase], sides: Sequence[CheckedSide], answers: Sequence[tuple[int, ...]]
) -> list[CheckedSide]:
    """Compute the log-probabilities again, once for itself and in a batch, and note the largest difference."""
    if engine.info is None or lack(engine.info, "logprobs"):
        return list(sides)
    tokens = [answer or side.answer_ids for answer, side in zip(answers, sides, strict=True)]
    can_score = not lack(engine.info, "scores")
    asked = [at for at, side in enumerate(sides) if not side.error and (side.logprobs or (can_score and tokens[at]))]

    async def again(at: int) -> tuple[TokenLogprob, ...]:
        request = cases[at].request
        scored: Request = (
            ScoreRequest(
                request_id="",
                prompt=request.prompt,
                sampling=request.sampling,
                own_arguments=request.own_arguments,
                tokens=tokens[at],
                logprobs=_TOP,
                adapter=request.adapter,
            )
            if can_score and tokens[at]
            else msgspec.structs.replace(request, logprobs=_TOP)
        )
        return tuple((await whole_answer(engine, scored)).logprobs)

    alone = {at: await again(at) for at in asked}
    batch = asked * math.ceil(_BATCH / max(1, len(asked)))
    together = list(zip(batch, await asyncio.gather(*map(again, batch)), strict=True))
    found = list(sides)
    for at in asked:
        runs = [sides[at].logprobs, *(run for number, run in together if number == at)]
        noises = [noise_between(alone[at], run) for run in runs]
        found[at] = msgspec.structs.replace(
            sides[at],
            fixed=alone[at] if can_score and tokens[at] else (),
            noise=max((one for one in noises if one is not None), default=None),
        )
    return found


async def _side(engine: Engine, request: GenerateRequest, folder: Path, *, is_asked: bool) -> CheckedSide:
    side = CheckedSide(dtype=engine.info.dtype if engine.info is not None else "")
    is_seen = is_asked and not lack(engine.info, "model_view")
    try:
        if is_seen or not is_asked:
            rendering = RenderRequest(
                request_id="",
                prompt=request.prompt,
                sampling=request.sampling,
                own_arguments=request.own_arguments,
                view=View(folder=str(folder), values=True) if is_seen else None,
            )
            side = await _with_answer(engine, rendering, side)
        if is_asked:
            top = None if lack(engine.info, "logprobs") else _TOP
            side = await _with_answer(engine, msgspec.structs.replace(request, logprobs=top), side)
    except VlmtuiError as error:
        return msgspec.structs.replace(side, error=text_of(error))
    return side


async def _with_answer(engine: Engine, request: Request, side: CheckedSide) -> CheckedSide:
    """Run a request, and return `side` with its prompt and answer added. Raises VlmtuiError."""
    answer = await whole_answer(engine, request)
    if not isinstance(answer.outcome, Finished):
        raise (answer.failure or broken_off("").failure).error()
    text = side.text
    if (ready := answer.prompt) is not None:
        if isinstance(request, RenderRequest):
            text = ready.text if request.view else ready.prompt
        side = msgspec.structs.replace(
            side, text=text, token_ids=ready.token_ids, media=ready.media, seen=ready.seen or side.seen
        )
    return msgspec.structs.replace(
        side,
        words=side.words | {number: token.text for number, token in answer.vocabulary.items()},
        answer=answer.text,
        answer_ids=tuple(answer.token_ids),
        logprobs=tuple(answer.logprobs),
        prompt_tokens=answer.usage.prompt_tokens or None,
        is_answered=isinstance(request, GenerateRequest),
    )


def require_here(model: Model) -> Path:
    """Return the folder of a model's files. Raises VlmtuiError if it is not downloaded."""
    if (folder := model_folder(model.spec.model)) is None:
        raise bad_input(f"{model.spec.name} is not downloaded.", hint=download_hint(model))
    return folder


def sides_by_processor(
    reader: ModelReader, model: Model, cases: Sequence[CheckCase], *, trust: bool = False
) -> list[CheckedSide]:
    """Return the prompts that Transformers makes without the model's weights. Blocking. `trust`: allow the repository's
    own code. Raises VlmtuiError if the model can't be read."""
    folder = require_here(model)
    if error := error_of([one for one in file_faults(folder, may_lack_weights=True) if one.is_needed], folder):
        raise error
    prompts = tuple(_prompt_case(model.family, case, str(number)) for number, case in enumerate(cases))
    reading = reader.read(ReadRequest(folder=str(folder), trust_remote_code=trust, prompts=prompts))
    if reading.trouble is not None:
        fault = tokenizer_fault(reading.trouble, reading.message)
        message = f"Can't make the prompts of {model.spec.name}. {fault.message}"
        raise VlmtuiError(ErrorKind.BAD_INPUT, message, hint=fault.mend)
    found = []
    for prompt in prompts:
        made = reading.prompts[prompt.name]
        own = f"`vlmtui lint {model.spec.name}` says what is wrong with it."
        hint = own if "template" in made.problem else "`check record --on here` uses vLLM's own processor instead."
        found.append(
            CheckedSide(error=f"{made.problem} {hint}")
            if made.problem
            else CheckedSide(text=made.text, token_ids=made.token_ids, media=made.media)
        )
    return found


def _prompt_case(family: Family, case: CheckCase, name: str) -> PromptCase:
    """Return a case in the form that the model reader (`ModelReader`) accepts."""
    images = sum(item.modality == "image" for item in all_attachments(case.turns))
    made: Prompt = case.request.prompt
    prompt = PromptCase(
        name=name,
        attachments=attachments_of(made),
        processor_arguments=settings_of(family, images),
        variables=variables_of(case.request.sampling),
    )
    match made:
        case ChatPrompt():
            return msgspec.structs.replace(
                prompt,
                messages=in_each_form(family, name, made.turns),
                chat_template=made.chat_template,
                fallback_template=made.fallback_template,
            )
        case MessagesPrompt():
            messages = tuple(msgspec.to_builtins(message) for message in made.messages)
            rendered = RenderCase(name, dict.fromkeys(FORMS, messages))
            return msgspec.structs.replace(
                prompt, messages=rendered, chat_template=made.chat_template, adds_special=True
            )
        case RawPrompt():
            return msgspec.structs.replace(prompt, text=made.text, adds_special=True)


def text_of(error: VlmtuiError) -> str:
    """Return an error with its detail and its hint."""
    return " ".join(filter(None, (error.message, error.detail, error.hint)))
