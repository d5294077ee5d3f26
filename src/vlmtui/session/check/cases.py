"""The cases of a check: built-in conversations, recorded prompts, comparisons, conversations and batch files."""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import msgspec

from vlmtui.domain.conversation import Attachment, Media, Modality, Part, Text, Turn, attachments_of
from vlmtui.domain.generation import GenerateRequest, TokenLogprob
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import bad_input
from vlmtui.files import write_atomically
from vlmtui.inspection.lint.subject import canned_conversations
from vlmtui.inspection.recorded import By, RecordedCase, encode_recorded, read_recorded, recorded_of, recorded_side
from vlmtui.inspection.replay import Comparison, EngineFingerprint, MediaRecord, engine_of, from_json
from vlmtui.inspection.stages import CheckedSide
from vlmtui.media.content_store import place, store_medium
from vlmtui.media.stage import stage
from vlmtui.paths import bundled
from vlmtui.reading import is_file, is_folder, opened, read_whole
from vlmtui.registry.match import Model
from vlmtui.registry.schema import Family
from vlmtui.session.batch.items import BadItem, BatchReader
from vlmtui.session.batch.media_desk import MediaDesk
from vlmtui.session.batch.run import BatchJob
from vlmtui.session.dials import variables_of, with_parameters, with_variables
from vlmtui.session.generation import PromptMode, make_request
from vlmtui.session.lanes import recorded_specs
from vlmtui.store.document import DOCUMENT_BYTES_MAX, read_document, with_stored_media
from vlmtui.text import one_line, visible

_BUNDLED = "bundled:"
_COPY_BYTES_MAX = 1_000_000_000
_SAMPLES: dict[Modality, tuple[str, ...]] = {
    "image": ("circle.png", "two-shapes.png"),
    "video": ("moving-circle.mp4",),
}
BUILT_IN = (
    "text", "system", "image", "images", "images_swapped", "later_image", "image_each_turn", "system_image", "video",
)  # fmt: skip
"""Names of the built-in conversations that are checked by default. Engines here refuse `placeholder_in_text`."""
GREEDY = Sampling(temperature=0.0, max_tokens=16)
"""The sampling of cases without their own."""


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
    """The paths of the conversation's attachments, relative to the recorded file."""
    recorded: CheckedSide | None = None
    made_by: EngineFingerprint | None = None
    """The engine of the recorded answer, if there is one."""

    @property
    def title(self) -> str:
        return f"{self.case} {self.mode}"


def built_in_cases(
    model: Model, names: Sequence[str], modes: Sequence[PromptMode], media: Path, given: Sequence[str] = ()
) -> list[CheckCase]:
    """Return the built-in conversations of these names as cases, with images that come with vlmtui, stored in `media`.
    Without names, return those of `BUILT_IN` that the model's family accepts, and one each with thinking on and off if
    it can be switched. `given`: parameters, `NAME=VALUE`. Raises VlmtuiError for an unknown name or parameter."""
    family = model.family
    known = {one.name: one for one in canned_conversations(family)}
    if "images" in known:
        known["images_swapped"] = known["images"]
    switch = family.thinking is not None and bool(family.thinking.switch)
    variants = {f"thinking_{value}": f"thinking={value}" for value in ("on", "off")} if switch else {}
    found = []
    for name in names or (*BUILT_IN, *variants):
        one = known.get("image" if name in variants and "image" in known else "text" if name in variants else name)
        if one is None:
            if names:
                message = f"{model.spec.name} has no conversation {name!r}."
                raise bad_input(message, hint=f"It has {', '.join((*known, *variants))}.")
            continue
        samples = {modality: cycle(every) for modality, every in _SAMPLES.items()}
        files = [_BUNDLED + next(samples[modality]) for modality in one.modalities]
        if name == "images_swapped":
            files.reverse()
        staged = iter([_staged(file, Path(), media) for file in files])
        turns = tuple(
            Turn(turn.role, tuple(Media(next(staged)) if isinstance(part, Media) else part for part in turn.parts))
            for turn in one.turns
        )
        sampling = with_parameters(GREEDY, family, [*given, *filter(None, [variants.get(name)])])
        found += [case_of(family, name, mode, turns, files, sampling=sampling) for mode in modes]
    return found


def question_case(
    family: Family,
    name: str,
    mode: PromptMode,
    question: str,
    images: Sequence[Path],
    folder: Path,
    media: Path,
    given: Sequence[str] = (),
) -> CheckCase:
    """Return a question about the user's images as a case. `folder`: the folder of the recorded prompt, which refers to
    the images by relative paths. `given`: parameters, `NAME=VALUE`. Raises VlmtuiError."""
    parts: tuple[Part, ...] = (*(Media(stage(path, media)) for path in images), Text(question))
    files = [os.path.relpath(path, folder) for path in images]
    sampling = with_parameters(GREEDY, family, list(given))
    return case_of(family, name, mode, (Turn("user", parts),), files, sampling=sampling)


def copied_beside(path: Path, folder: Path) -> Path:
    """Return the path of a file inside `folder`, the folder of a recorded file; a file from elsewhere is first copied
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


def recorded_case(family: Family, recorded: RecordedCase, path: Path, media: Path) -> CheckCase:
    """Return the case in a recorded file. Raises VlmtuiError, also if an image or video has changed since it was
    recorded."""
    staged = [_staged(one.file, path.parent, media) for one in recorded.media]
    for medium, attachment in zip(recorded.media, staged, strict=True):
        if attachment.sha256 != medium.sha256:
            raise bad_input(f"{medium.file} is not the file that was recorded: its content has changed.")
    turns = []
    for turn in recorded.conversation:
        if any(part.media is not None and not 0 <= part.media < len(staged) for part in turn.parts):
            raise bad_input(f"{path.name} names an image or video that it does not have.")
        parts = (Text(part.text or "") if part.media is None else Media(staged[part.media]) for part in turn.parts)
        turns.append(Turn(turn.role, tuple(parts)))
    files, sampling = [one.file for one in recorded.media], with_variables(GREEDY, recorded.variables)
    case = case_of(family, recorded.case, recorded.mode, tuple(turns), files, sampling=sampling)
    return msgspec.structs.replace(case, file=str(path), recorded=recorded_side(recorded))


def is_conversation(path: Path) -> bool:
    """Return whether a file is an exported conversation. Raises VlmtuiError if it can't be read."""
    return b'"vlmtui conversation"' in read_whole(path, bytes_max=DOCUMENT_BYTES_MAX)[:400]


def read_record(path: Path) -> Comparison | RecordedCase:
    """Read a comparison document or a recorded file. Raises VlmtuiError."""
    is_recorded = b'"vlmtui-comparison' not in read_whole(path, bytes_max=DOCUMENT_BYTES_MAX)[:400]
    return read_recorded(path) if is_recorded else read_comparison(path)


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
            dtype=engine_of(comparison, side).dtype,
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
    family: Family,
    name: str,
    mode: PromptMode,
    turns: tuple[Turn, ...],
    files: Sequence[str] = (),
    *,
    sampling: Sampling = GREEDY,
) -> CheckCase:
    """Return a conversation as a case. Raises VlmtuiError if the family does not accept it."""
    request = make_request(family, turns, sampling, mode=mode)
    return CheckCase(case=name, mode=mode, request=request, turns=turns, files=tuple(files))


def conversation_cases(family: Family, path: Path, mode: PromptMode, media: Path) -> list[CheckCase]:
    """Return a case for each answer of an exported conversation: its question and the turns before it. Raises
    VlmtuiError, also if a file is missing."""
    given = read_document(read_whole(path, bytes_max=DOCUMENT_BYTES_MAX))
    document, *absent = with_stored_media(given, path.parent, media)
    if lost := [name for names in absent for name in names]:
        raise bad_input(f"{path.name} lacks {one_line(lost[0])}, so its prompts can't be made again.")
    shown = [Turn(turn.role, turn.parts) for turn in document.shown]
    return [
        msgspec.structs.replace(case_of(family, f"answer {at}", mode, tuple(shown[:at])), file=str(path))
        for at, turn in enumerate(shown)
        if turn.role == "assistant"
    ]


async def batch_cases(family: Family, path: Path, mode: PromptMode, desk: MediaDesk) -> list[CheckCase]:
    """Return the items of a batch file as cases with greedy answers. `desk`: prepares their media, which must stay
    until they are answered. Raises VlmtuiError, also for a line that is no item."""
    job = BatchJob(family=family, model=family.family, sampling=GREEDY, cache=path.parent, mode=mode)
    found = []
    with opened(path, bytes_max=DOCUMENT_BYTES_MAX) as file:
        for item in BatchReader(file, base=path.parent):
            if isinstance(item, BadItem):
                raise bad_input(f"{path.name}, line {item.line}: {item.failure.message}", detail=item.failure.detail)
            request = job.request(item, [await desk.prepare(source) for source in item.sources])
            sampling = msgspec.structs.replace(request.sampling, temperature=0.0)
            request = msgspec.structs.replace(request, sampling=sampling, final_only=False)
            kind: PromptMode = "raw" if item.raw is not None else mode
            found.append(CheckCase(case=item.id, mode=kind, request=request, file=str(path)))
    return found


def _staged(file: str, folder: Path, media: Path) -> Attachment:
    if file.startswith(_BUNDLED):
        return stage(bundled("samples") / Path(file.removeprefix(_BUNDLED)).name, media)
    if not (folder / file).resolve().is_relative_to(folder.resolve()):
        raise bad_input(f"The recorded prompt names {one_line(file)}, which is not below its own folder.")
    return stage(folder / file, media)


def write_recorded(path: Path, case: CheckCase, side: CheckedSide, *, model: str, by: By) -> None:
    """Write a recorded file. Raises VlmtuiError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise bad_input(f"Can't create {path.parent}.", detail=str(error)) from error
    variables = variables_of(case.request.sampling)
    recorded = recorded_of(
        case.turns, case.files, side, model=model, case=case.case, mode=case.mode, by=by, variables=variables
    )
    write_atomically(path, encode_recorded(recorded))


def case_folder(folder: Path, model: str) -> Path:
    """Return the folder of a model's recorded prompts: `FOLDER/Qwen--Qwen2-VL-2B-Instruct`."""
    plain = [one for one in model.replace("\\", "/").split("/") if one.strip(".")]
    name = "--".join("".join(char if char.isalnum() or char in "._-" else "-" for char in one) for one in plain)
    return folder / (name or "model")
