"""An engine's results for the cases of a check: prompt, pixels, answer, log-probabilities and their noise. They can be
kept in a folder, for a check that goes on after it was stopped."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from vlmtui.domain.capabilities import lack, require_capability
from vlmtui.domain.conversation import (
    ChatPrompt,
    MessagesPrompt,
    Prompt,
    RawPrompt,
    all_attachments,
    attachments_of,
    with_attachments,
)
from vlmtui.domain.engine import EngineInfo
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
from vlmtui.files import write_atomically
from vlmtui.inspection.build import fingerprint_of, without_paths
from vlmtui.inspection.lint.check import tokenizer_fault
from vlmtui.inspection.lint.subject import in_each_form
from vlmtui.inspection.stages import CheckedSide, noise_between
from vlmtui.media.changed_images import grey_image
from vlmtui.paths import private_dir
from vlmtui.reading import is_file, read_struct
from vlmtui.registry.estimate import settings_of
from vlmtui.registry.hub_cache import model_folder
from vlmtui.registry.match import Model
from vlmtui.registry.model_files import error_of, file_faults
from vlmtui.registry.schema import Family
from vlmtui.session.check.cases import CheckCase
from vlmtui.session.dials import variables_of
from vlmtui.session.generation import broken_off, whole_answer
from vlmtui.session.lanes import MATTERS
from vlmtui.session.lint import download_hint

_TOP = 20
"""Log-probabilities to request for each token: vLLM's default limit."""
_BATCH = 4
"""Fewest requests that are sent together to measure the noise."""
_PART = 8
"""Cases whose results are kept together: those that a stopped check asks again at most."""
_KEPT_BYTES_MAX = 100_000_000


def kept_files(
    info: EngineInfo, cases: Sequence[CheckCase], answers: Sequence[tuple[int, ...]], folder: Path, *, is_asked: bool
) -> list[Path]:
    """Return the file for each case's result in `folder`. Its name is a digest of the request, the base's answer, and
    the engine: what determines it, and its version, device and files as it tells them."""
    found = []
    for case, answer in zip(cases, answers, strict=True):
        request = msgspec.structs.replace(case.request, request_id="", prompt=without_paths(case.request.prompt))
        everything = info.spec, fingerprint_of(info), info.files, request, answer, is_asked
        found.append(folder / f"{hashlib.sha256(msgspec.json.encode(everything)).hexdigest()}.json")
    return found


async def sides_in_parts(
    engine: Engine,
    cases: Sequence[CheckCase],
    folder: Path,
    answers: Sequence[tuple[int, ...]],
    *,
    is_asked: bool,
    files: Sequence[Path] = (),
) -> AsyncIterator[CheckedSide]:
    """Yield what `sides_by_engine` returns, a few cases at a time. `files`: for each case, the file in `folder` with
    its result, if it was computed before; if not, it is written, unless it has an error. Raises VlmtuiError."""
    for start in range(0, len(cases), _PART):
        part = range(start, min(start + _PART, len(cases)))
        found = {at: side for at in part if files and (side := _kept_side(files[at])) is not None}
        asked = [at for at in part if at not in found]
        given = [cases[at] for at in asked], folder, [answers[at] for at in asked]
        for at, side in zip(asked, await sides_by_engine(engine, *given, is_asked=is_asked), strict=True):
            found[at] = side
            if files and not side.error:
                write_atomically(files[at], msgspec.json.encode(side))
        for at in part:
            yield found[at]


def _kept_side(file: Path) -> CheckedSide | None:
    """Return the result in a file; None if there is none, or one of its pixel values is gone."""
    try:
        side = read_struct(file, CheckedSide, bytes_max=_KEPT_BYTES_MAX)
    except VlmtuiError:
        return None
    values = [Path(path) for medium in side.seen for path in medium.values]
    return side if all(path.parent == file.parent and is_file(path) for path in values) else None


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
    return await _with_noise(engine, cases, sides, answers or [()] * len(cases), private) if is_asked else sides


async def _with_noise(
    engine: Engine,
    cases: Sequence[CheckCase],
    sides: Sequence[CheckedSide],
    answers: Sequence[tuple[int, ...]],
    folder: Path,
) -> list[CheckedSide]:
    """Compute the log-probabilities again, once for itself and in a batch, and note the largest difference; and once
    with grey images. `folder`: for these."""
    if engine.info is None or lack(engine.info, "logprobs"):
        return list(sides)
    tokens = [answer or side.answer_ids for answer, side in zip(answers, sides, strict=True)]
    can_score = not lack(engine.info, "scores")
    asked = [at for at, side in enumerate(sides) if not side.error and (side.logprobs or (can_score and tokens[at]))]

    async def again(at: int, prompt: Prompt | None = None) -> tuple[TokenLogprob, ...]:
        request = msgspec.structs.replace(cases[at].request, prompt=prompt or cases[at].request.prompt)
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
        grey = await asyncio.to_thread(_in_grey, cases[at].request.prompt, folder)
        found[at] = msgspec.structs.replace(
            sides[at],
            fixed=alone[at] if can_score and tokens[at] else (),
            noise=max((one for one in noises if one is not None), default=None),
            grey=_log_ratio(alone[at], await again(at, grey)) if grey is not None else None,
        )
    return found


def _log_ratio(own: Sequence[TokenLogprob], other: Sequence[TokenLogprob]) -> float | None:
    """Return how likely the answer `own` is in `other`: the natural logarithm of the ratio, up to and with the first
    token at which another was chosen there. None: unknown."""
    total = 0.0
    for one, there in zip(own, other, strict=False):
        known = there.by_id
        total += known.get(one.token_id, min(known.values())) - one.logprob
        if one.token_id != there.token_id:
            break
    return total if own and other else None


def _in_grey(prompt: Prompt, folder: Path) -> Prompt | None:
    """Return the prompt with grey images in place of its own; None if it has none, or one is gone. Blocking."""
    if not any(item.modality == "image" for item in attachments_of(prompt)):
        return None
    try:
        return with_attachments(prompt, lambda one: grey_image(one, folder) if one.modality == "image" else one)
    except VlmtuiError:
        return None


def uses_images(side: CheckedSide) -> bool | None:
    """Return whether an answer depends on its images: with grey ones it is half as likely or less, or twice as likely
    or more, and that is more than the noise. None: not measured."""
    if side.grey is None:
        return None
    return abs(side.grey) > max(-math.log(MATTERS), (side.noise or 0.0) * len(side.answer_ids))


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
