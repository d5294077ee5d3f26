"""Compares engines stage by stage: their prompts, processor outputs and answers for the same cases.

The base of a comparison is a record (a golden file or a comparison document), completed by the first engine."""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path

import msgspec

from vlmtui.domain.capabilities import lack, require_capability
from vlmtui.domain.conversation import (
    Attachment,
    ChatPrompt,
    Media,
    MessagesPrompt,
    Modality,
    Part,
    Prompt,
    RawPrompt,
    Text,
    Turn,
    all_attachments,
    attachments_of,
)
from vlmtui.domain.generation import Finished, GenerateRequest, RenderRequest, Request, TokenLogprob, View
from vlmtui.domain.model_reading import FORMS, PromptCase, ReadRequest, RenderCase
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine, ModelReader
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.files import write_atomically
from vlmtui.inspection.golden import By, Golden, encode_golden, golden_of, read_golden, recorded_side
from vlmtui.inspection.lint.check import tokenizer_fault
from vlmtui.inspection.lint.subject import canned_conversations, in_each_form
from vlmtui.inspection.replay import Comparison, EngineFingerprint, MediaRecord, engine_of, from_json
from vlmtui.inspection.stages import CheckedSide, StageResult, Tolerance, compare_sides, first_difference
from vlmtui.media.content_store import place, store_medium
from vlmtui.media.stage import stage
from vlmtui.paths import bundled, private_dir
from vlmtui.reading import is_file, is_folder, read_whole
from vlmtui.registry.estimate import settings_of
from vlmtui.registry.hub_cache import model_folder
from vlmtui.registry.match import Model
from vlmtui.registry.model_files import error_of, file_faults
from vlmtui.registry.prompts import chat_prompt, raw_prompt
from vlmtui.registry.schema import Family
from vlmtui.session.dials import variables_of
from vlmtui.session.generation import PromptMode, broken_off, request_for, whole_answer
from vlmtui.session.lanes import recorded_specs
from vlmtui.session.lint import download_hint
from vlmtui.store.document import DOCUMENT_BYTES_MAX
from vlmtui.text import one_line, visible

_BUNDLED = "bundled:"
_COPY_BYTES_MAX = 1_000_000_000
_SAMPLES: dict[Modality, tuple[str, ...]] = {
    "image": ("circle.png", "two-shapes.png"),
    "video": ("moving-circle.mp4",),
}
RECORDED = ("text", "image", "images", "image_last", "later_image", "image_each_turn", "system_image", "video")
"""Names of the built-in test conversations that are recorded by default."""
COMPARED = ("text", "image", "images")
"""Names of those that two engines are compared with by default."""
_TOP = 20
"""Log-probabilities to request for each token: vLLM's default limit."""
_GOLDEN_TOKENS = 64
"""`max_tokens` of an answer to a conversation."""


class CheckCase(msgspec.Struct, frozen=True, kw_only=True):
    """A request to run on each engine, with its recorded result if there is one."""

    case: str
    """The case's name for people. Hostile text."""
    mode: PromptMode
    request: GenerateRequest
    file: str = ""
    """The file with its recorded result."""
    turns: tuple[Turn, ...] = ()
    """The conversation; empty if the request comes from a comparison document."""
    files: tuple[str, ...] = ()
    """The paths of the conversation's attachments, relative to the golden file."""
    recorded: CheckedSide | None = None
    made_by: EngineFingerprint | None = None
    """The engine of the recorded answer, if there is one."""

    @property
    def title(self) -> str:
        return f"{self.case} {self.mode}"


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's result for a case, compared with the base."""

    file: str = ""
    case: str = ""
    """The case's title; empty: the error concerns all cases."""
    engine: str = ""
    """The engine's name, as the user gave it."""
    stages: tuple[StageResult, ...] = ()
    answer: str = ""
    error: str = ""
    """Why the comparison is incomplete. Hostile text."""

    @property
    def first(self) -> StageResult | None:
        """The first stage that differs."""
        return first_difference(self.stages)


MakeSides = Callable[[Sequence[CheckCase]], Awaitable[list[CheckedSide]]]
"""Returns an engine's results for cases, in order. Raises VlmtuiError if the engine can't be loaded."""


async def run_cases(
    cases: Sequence[CheckCase], engines: Mapping[str, MakeSides], tolerance: Callable[[], Tolerance]
) -> list[CheckResult]:
    """Run all cases on each engine in turn, and compare the results with the base. Return the comparisons by case; an
    engine that is itself the base is not compared. `tolerance` returns the tolerance; it is called after all engines
    have answered."""
    made: dict[str, list[CheckedSide]] = {}
    found = []
    for name, make in engines.items():
        try:
            made[name] = await make(cases)
        except VlmtuiError as error:
            found.append(CheckResult(engine=name, error=text_of(error)))
            if all(case.recorded is None for case in cases):
                break  # there is no base
    for at, case in enumerate(cases):
        first = next((sides[at] for sides in made.values() if not sides[at].error), None)
        for name, sides in made.items():
            now = sides[at]
            base = _base(case.recorded, first if first is not now else None)
            if base is None and not now.error:
                continue
            stages = compare_sides(now, base, tolerance()) if base is not None else []
            found.append(
                CheckResult(
                    file=case.file,
                    case=case.title,
                    engine=name,
                    stages=tuple(stages),
                    answer=now.answer,
                    error=now.error,
                )
            )
    return found


def _base(recorded: CheckedSide | None, first: CheckedSide | None) -> CheckedSide | None:
    """Return the base: the record, with the first engine's values for what it lacks; without a record, the first
    engine's result."""
    if recorded is None or first is None:
        return recorded or first
    base = (
        recorded
        if recorded.is_answered
        else msgspec.structs.replace(
            first,
            text=recorded.text,
            token_ids=recorded.token_ids or first.token_ids,
            media=recorded.media or first.media,
        )
    )
    return msgspec.structs.replace(base, seen=first.seen, words=first.words | recorded.words)


# -- cases


def canned_cases(
    model: Model,
    names: Sequence[str],
    modes: Sequence[PromptMode],
    media: Path,
    *,
    usual: Sequence[str] = RECORDED,
) -> list[CheckCase]:
    """Return the built-in test conversations of these names as cases, with images that come with vlmtui, stored in
    `media`. Without names, return those of `usual` that the model's family accepts. Raises VlmtuiError for an unknown
    name."""
    known = {one.name: one for one in canned_conversations(model.family)}
    found = []
    for name in names or usual:
        if name not in known:
            if names:
                message = f"{model.spec.name} has no conversation {name!r}."
                raise bad_input(message, hint=f"It has {', '.join(known)}.")
            continue
        samples = {modality: cycle(every) for modality, every in _SAMPLES.items()}
        files = [_BUNDLED + next(samples[modality]) for modality in known[name].modalities]
        staged = iter([_staged(file, Path(), media) for file in files])
        turns = tuple(
            Turn(turn.role, tuple(Media(next(staged)) if isinstance(part, Media) else part for part in turn.parts))
            for turn in known[name].turns
        )
        found += [case_of(model.family, name, mode, turns, files) for mode in modes]
    return found


def question_case(
    family: Family, name: str, mode: PromptMode, question: str, images: Sequence[Path], folder: Path, media: Path
) -> CheckCase:
    """Return a question about the user's images as a case. `folder`: the folder of the golden file, which refers to the
    images by relative paths. Raises VlmtuiError."""
    parts: tuple[Part, ...] = (*(Media(stage(path, media)) for path in images), Text(question))
    files = [os.path.relpath(path, folder) for path in images]
    return case_of(family, name, mode, (Turn("user", parts),), files)


def copied_beside(path: Path, folder: Path) -> Path:
    """Return the path of a file inside `folder`, the folder of a golden file; a file from elsewhere is first copied
    there. Raises VlmtuiError."""
    if path.resolve().is_relative_to(folder.resolve()):
        return path
    data, target = read_whole(path, bytes_max=_COPY_BYTES_MAX), folder / path.name
    if is_file(target) and read_whole(target, bytes_max=_COPY_BYTES_MAX) != data:
        raise bad_input(
            f"Can't copy {path}: {target} has other content.", hint=f"Copy {path} below {folder} by another name."
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(target, data)
    return target


def golden_case(family: Family, golden: Golden, path: Path, media: Path) -> CheckCase:
    """Return the case in a golden file. Raises VlmtuiError, also if an image or video has changed since it was
    recorded."""
    staged = [_staged(one.file, path.parent, media) for one in golden.media]
    for medium, attachment in zip(golden.media, staged, strict=True):
        if attachment.sha256 != medium.sha256:
            raise bad_input(f"{medium.file} is not the file that was recorded: its content has changed.")
    turns = []
    for turn in golden.conversation:
        if any(part.media is not None and not 0 <= part.media < len(staged) for part in turn.parts):
            raise bad_input(f"{path.name} names an image or video that it does not have.")
        parts = (Text(part.text or "") if part.media is None else Media(staged[part.media]) for part in turn.parts)
        turns.append(Turn(turn.role, tuple(parts)))
    case = case_of(family, golden.case, golden.mode, tuple(turns), [one.file for one in golden.media])
    return msgspec.structs.replace(case, file=str(path), recorded=recorded_side(golden))


def read_record(path: Path) -> Comparison | Golden:
    """Read a comparison document or a golden file. Raises VlmtuiError."""
    is_golden = b'"vlmtui-comparison' not in read_whole(path, bytes_max=DOCUMENT_BYTES_MAX)[:400]
    return read_golden(path) if is_golden else read_comparison(path)


def read_comparison(path: Path) -> Comparison:
    """Read a comparison whose requests can be repeated. Raises VlmtuiError(BAD_INPUT)."""
    comparison = from_json(read_whole(path, bytes_max=DOCUMENT_BYTES_MAX))
    known = {item.sha256 for item in comparison.attachments}
    for side in comparison.sides:
        if side.request is None:
            message = f"{path} has no request, so it can't be repeated."
            raise bad_input(message, hint="`vlmtui ask --export FILE.json` writes one that does.")
        if not known.issuperset(item.sha256 for item in attachments_of(side.request)):
            raise bad_input(f"{path} asks for an attachment that it does not list.")
    return comparison


def name_by_document(name: str) -> str:
    """Return the model's name as a document gives it. Raises VlmtuiError if it is a local folder: a document must not
    choose local files."""
    if Path(name).is_absolute() or name.startswith((".", "~")) or is_folder(Path(name)):
        message = f"Can't load the model in {one_line(name)}: a document must not choose local files."
        raise bad_input(message, hint=f"If it is yours, add --model {shlex.quote(one_line(name))}.")
    return name


def stored_file(media: Path, item: MediaRecord) -> Path:
    """Return an attachment's file in the media store. If the document contains the file's bytes, store them first.
    Raises VlmtuiError."""
    content = item.content
    if content is not None:
        kept = store_medium(io.BytesIO(content), media, name=item.name)
        if kept is None:
            raise bad_input(f"{visible(item.name)} is not an image, video, audio file or document.")
        if kept.sha256 != item.sha256:
            raise bad_input(f"{visible(item.name)} is damaged: its content does not match its SHA-256.")
        return kept.path
    found = place(media, item.sha256)
    if not is_file(found):
        message = f"{visible(item.name)} is neither in the document nor among the stored attachments."
        raise bad_input(message, detail=f"sha256 {item.sha256}", hint="Attach the same file once, and try again.")
    return found


def comparison_cases(path: Path, comparison: Comparison, media: Path) -> list[CheckCase]:
    """Return a comparison's sides as cases. Raises VlmtuiError."""
    files = {item.sha256: str(stored_file(media, item)) for item in comparison.attachments}
    try:
        specs = recorded_specs(comparison, files)
    except (KeyError, ValueError) as error:
        raise bad_input(f"{path.name}: its prompt cannot be made again.", detail=str(error)) from error
    found = []
    for side, spec in zip(comparison.sides, specs, strict=True):
        assert isinstance(spec.request, GenerateRequest)
        recorded = CheckedSide(
            token_ids=side.prompt_token_ids,
            media=side.media,
            answer=side.answer,
            answer_ids=side.answer_token_ids,
            logprobs=tuple(TokenLogprob(token_id=one.token_id, logprob=one.logprob) for one in side.logprobs or ()),
            words=dict(zip(side.answer_token_ids, side.answer_token_texts, strict=False)),
            is_answered=side.finish_reason is not None,
        )
        found.append(
            CheckCase(
                case=side.label or "answer",
                mode=side.mode,
                request=spec.request,
                file=str(path),
                recorded=recorded,
                made_by=engine_of(comparison, side),
            )
        )
    return found


def case_of(
    family: Family, name: str, mode: PromptMode, turns: tuple[Turn, ...], files: Sequence[str] = ()
) -> CheckCase:
    """Return a conversation as a case with greedy sampling. Raises VlmtuiError if the family does not accept it."""
    sampling = Sampling(temperature=0.0, max_tokens=_GOLDEN_TOKENS)
    request = request_for((chat_prompt if mode == "chat" else raw_prompt)(family, turns), family, sampling)
    return CheckCase(case=name, mode=mode, request=request, turns=turns, files=tuple(files))


def with_fixed_length(case: CheckCase, tokens: int) -> CheckCase:
    """Return the case with a greedy answer of exactly `tokens` tokens, whatever the model's generation config says."""
    sampling = Sampling(
        temperature=0.0, top_p=1.0, top_k=0, min_p=0.0, repetition_penalty=1.0, presence_penalty=0.0,
        frequency_penalty=0.0, seed=0, max_tokens=tokens, skip_special_tokens=False, extra={"ignore_eos": True},
    )  # fmt: skip
    request = GenerateRequest(request_id="", prompt=case.request.prompt, sampling=sampling)
    return msgspec.structs.replace(case, request=request)


def _staged(file: str, folder: Path, media: Path) -> Attachment:
    if file.startswith(_BUNDLED):
        return stage(bundled("samples") / Path(file.removeprefix(_BUNDLED)).name, media)
    if not (folder / file).resolve().is_relative_to(folder.resolve()):
        raise bad_input(f"The golden prompt names {one_line(file)}, which is not below its own folder.")
    return stage(folder / file, media)


# -- engines


async def sides_by_engine(
    engine: Engine, cases: Sequence[CheckCase], folder: Path, *, is_asked: bool = True
) -> list[CheckedSide]:
    """Return an engine's result for each case: prompt, processor outputs (written into `folder`, which gets mode 0700)
    and answer, or the error. The cases run one after the other, since batching changes some engines' numbers.

    `is_asked` False: make only the prompts. Raises VlmtuiError if the engine can't make prompts without answers."""
    if not is_asked:
        require_capability(engine.info, "render_only")
    private = private_dir(folder)
    return [await _side(engine, case.request, private, is_asked=is_asked) for case in cases]


async def _side(engine: Engine, request: GenerateRequest, folder: Path, *, is_asked: bool) -> CheckedSide:
    side = CheckedSide()
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
        hint = own if "template" in made.problem else "With --with-engine, vLLM's own processor makes the prompt."
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


def changed_fingerprint(then: EngineFingerprint, now: EngineFingerprint) -> dict[str, tuple[object, object]]:
    """Return how two engine fingerprints differ: name → (then, now). Facts that were unknown then are left out; between
    two kinds of engines, so are engine arguments that only one fingerprint has. The value None is the engine's
    default."""
    before, after = msgspec.to_builtins(then), msgspec.to_builtins(now)
    old, new = before.pop("engine_args"), after.pop("engine_args")
    pairs = {name: (before[name], after[name]) for name in before if before[name] and before[name] != after[name]}
    names = old.keys() & new.keys() if "backend" in pairs else old.keys() | new.keys()
    both = {f"engine_args.{name}": (old.get(name), new.get(name)) for name in sorted(names)}
    return pairs | {name: pair for name, pair in both.items() if pair[0] != pair[1]}


# -- golden files


def write_golden(path: Path, case: CheckCase, side: CheckedSide, *, model: str, by: By) -> None:
    """Write a golden file. Raises VlmtuiError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise bad_input(f"Can't create {path.parent}.", detail=str(error)) from error
    golden = golden_of(case.turns, case.files, side, model=model, case=case.case, mode=case.mode, by=by)
    write_atomically(path, encode_golden(golden))


def golden_folder(folder: Path, model: str) -> Path:
    """Return the folder of a model's golden prompts: `FOLDER/Qwen--Qwen2-VL-2B-Instruct`."""
    plain = [one for one in model.replace("\\", "/").split("/") if one.strip(".")]
    name = "--".join("".join(char if char.isalnum() or char in "._-" else "-" for char in one) for one in plain)
    return folder / (name or "model")


def text_of(error: VlmtuiError) -> str:
    """Return an error with its detail and its hint."""
    return " ".join(filter(None, (error.message, error.detail, error.hint)))
