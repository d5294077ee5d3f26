"""Records golden prompts and checks them: by a model's own tokenizer and processor, or by an engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from vlmtui.domain.attachment import Attachment, Modality
from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.conversation import Media, Part, Text, Turn, all_attachments
from vlmtui.domain.generation import MediaSpan
from vlmtui.domain.model_reading import FORMS, PromptCase, ReadRequest, RenderCase
from vlmtui.domain.prompt import ChatPrompt, MessagesPrompt, RawPrompt
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine, ModelReader
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.files import write_atomically
from vlmtui.inspection.golden import (
    Golden,
    GoldenChange,
    GoldenMedium,
    GoldenPart,
    GoldenTurn,
    encode_golden,
    folded_ids,
    medium_of,
    moved_since,
    read_golden,
    text_lines,
)
from vlmtui.inspection.lint.check import tokenizer_fault
from vlmtui.inspection.lint.conversations import canned_conversations, in_each_form
from vlmtui.media.stage import stage
from vlmtui.paths import bundled
from vlmtui.registry.estimate import settings_of
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.registry.prompts import chat_prompt, raw_prompt
from vlmtui.session.generation import PromptMode, make_request
from vlmtui.session.lint import download_hint, model_folder
from vlmtui.session.model_view import rendered_prompt

By: TypeAlias = Literal["processor", "engine"]
OpenEngine: TypeAlias = Callable[[Model], AbstractAsyncContextManager[Engine]]
_BUNDLED = "bundled:"
_SAMPLES: dict[Modality, tuple[str, ...]] = {
    "image": ("circle.png", "two-shapes.png"),
    "video": ("moving-circle.mp4",),
}
CASES = ("text", "image", "images", "image_last", "later_image", "image_each_turn", "system_image", "video")
"""Canned conversations that are recorded unless others are named."""


class PromptToRecord(msgspec.Struct, frozen=True):
    """A conversation, with the files of its attachments as they are written in the golden file."""

    case: str
    mode: PromptMode
    turns: tuple[Turn, ...]
    files: tuple[str, ...]


class CheckedGolden(msgspec.Struct, frozen=True):
    """A golden file, and what moved; or why it could not be checked."""

    path: Path
    golden: Golden | None
    moved: tuple[GoldenChange, ...] = ()
    error: VlmtuiError | None = None


class GoldenPrompts(msgspec.Struct, frozen=True):
    """Makes golden prompts of models."""

    registry: Registry
    reader: ModelReader
    media: Path
    """Where attachments are stored."""
    open_engine: OpenEngine | None = None
    """Opens a model's engine, for prompts by the engine."""
    trust_remote_code: bool = False

    def canned(self, model: Model, names: Sequence[str], modes: Sequence[PromptMode]) -> list[PromptToRecord]:
        """Return the canned conversations of these names that the model can have. Raises VlmtuiError for a name that
        no conversation has."""
        known = {one.name: one for one in canned_conversations(model.family)}
        found = []
        for name in names or CASES:
            if name not in known:
                if names:
                    message = f"{model.spec.name} has no conversation {name!r}."
                    raise bad_input(message, hint=f"It has {', '.join(known)}.")
                continue
            counts: dict[Modality, int] = {}
            files = []
            for modality in known[name].modalities:
                files.append(_BUNDLED + _SAMPLES[modality][counts.get(modality, 0) % len(_SAMPLES[modality])])
                counts[modality] = counts.get(modality, 0) + 1
            turns = self._with_files(known[name].turns, files, Path())
            found += [PromptToRecord(name, mode, turns, tuple(files)) for mode in modes]
        return found

    def of_question(
        self, case: str, question: str, files: Sequence[Path], folder: Path, mode: PromptMode
    ) -> PromptToRecord:
        """Return a question about files of the user's; `folder` is the golden file's."""
        attachments = [stage(path, self.media) for path in files]
        parts: tuple[Part, ...] = (*(Media(one) for one in attachments), Text(question))
        names = tuple(os.path.relpath(path, folder) for path in files)
        return PromptToRecord(case, mode, (Turn("user", parts),), names)

    async def make(self, name: str, prompts: Sequence[PromptToRecord], by: By) -> list[Golden | VlmtuiError]:
        """Make the golden prompts of a model, in order. Raises VlmtuiError if the model cannot be read or loaded."""
        model = resolve(self.registry, name)
        spans = await self._by_engine(model, prompts) if by == "engine" else self._by_processor(model, prompts)
        return [
            made if isinstance(made, VlmtuiError) else _golden(name, prompt, by, *made)
            for prompt, made in zip(prompts, spans, strict=True)
        ]

    async def check(self, paths: Sequence[Path]) -> list[CheckedGolden]:
        """Make the prompts of golden files again and compare them. What fails is told with its file."""
        checked: dict[Path, CheckedGolden] = {}
        groups: dict[tuple[str, By], list[tuple[Path, Golden, PromptToRecord]]] = {}
        for path in paths:
            try:
                golden = read_golden(path)
                prompt = self.again(golden, path)
            except VlmtuiError as error:
                checked[path] = CheckedGolden(path, None, error=error)
                continue
            name = model_name(golden.model, path)
            groups.setdefault((name, golden.by), []).append((path, golden, prompt))
        for (name, by), group in groups.items():
            try:
                made = await self.make(name, [prompt for _, _, prompt in group], by)
            except VlmtuiError as error:
                made = [error] * len(group)
            for (path, golden, _), now in zip(group, made, strict=True):
                checked[path] = (
                    CheckedGolden(path, golden, error=now)
                    if isinstance(now, VlmtuiError)
                    else CheckedGolden(path, golden, tuple(moved_since(golden, now)))
                )
        return [checked[path] for path in paths]

    def again(self, golden: Golden, path: Path) -> PromptToRecord:
        """Return the conversation of a golden file. Raises VlmtuiError if a file of it is gone or has changed."""
        files = [one.file for one in golden.media]
        staged = [self._staged(one.file, path.parent) for one in golden.media]
        for medium, attachment in zip(golden.media, staged, strict=True):
            if attachment.sha256 != medium.sha256:
                raise bad_input(f"{medium.file} is not the file that was recorded: its content has changed.")
        try:
            turns = tuple(
                Turn(turn.role, tuple(_part(part, staged) for part in turn.parts)) for turn in golden.conversation
            )
        except IndexError as error:
            raise bad_input(f"{path.name} names an image or video that it does not have.") from error
        return PromptToRecord(golden.case, golden.mode, turns, tuple(files))

    def _with_files(self, turns: Sequence[Turn], files: Sequence[str], folder: Path) -> tuple[Turn, ...]:
        """Return canned turns with real files in the place of their stand-ins."""
        staged = iter([self._staged(file, folder) for file in files])
        return tuple(
            Turn(turn.role, tuple(Media(next(staged)) if isinstance(part, Media) else part for part in turn.parts))
            for turn in turns
        )

    def _staged(self, file: str, folder: Path) -> Attachment:
        is_bundled = file.startswith(_BUNDLED)
        path = bundled("samples") / Path(file.removeprefix(_BUNDLED)).name if is_bundled else folder / file
        return stage(path, self.media)

    def _by_processor(
        self, model: Model, prompts: Sequence[PromptToRecord]
    ) -> list[tuple[str, Sequence[int], Sequence[MediaSpan]] | VlmtuiError]:
        folder = model_folder(model)
        if folder is None:
            message = f"{model.spec.name} is not downloaded."
            raise bad_input(message, hint=download_hint(model))
        cases = tuple(_case(model, prompt, str(number)) for number, prompt in enumerate(prompts))
        request = ReadRequest(folder=str(folder), trust_remote_code=self.trust_remote_code, prompts=cases)
        reading = self.reader.read(request)
        if reading.trouble is not None:
            fault = tokenizer_fault(reading.trouble, reading.message)
            message = f"Can't make the prompts of {model.spec.name}. {fault.message}"
            raise VlmtuiError(ErrorKind.BAD_INPUT, message, hint=fault.mend)
        found: list[tuple[str, Sequence[int], Sequence[MediaSpan]] | VlmtuiError] = []
        for case in cases:
            made = reading.prompts[case.name]
            own = f"`vlmtui lint {model.spec.name}` says what is wrong with it."
            hint = own if "template" in made.problem else "With --with-engine, vLLM's own processor makes the prompt."
            found.append(
                VlmtuiError(ErrorKind.BAD_INPUT, made.problem, hint=hint)
                if made.problem
                else (made.text, made.token_ids, made.media)
            )
        return found

    async def _by_engine(
        self, model: Model, prompts: Sequence[PromptToRecord]
    ) -> list[tuple[str, Sequence[int], Sequence[MediaSpan]] | VlmtuiError]:
        if self.open_engine is None:
            raise VlmtuiError(ErrorKind.NO_ENGINE, "These prompts were made by an engine.", hint="Use --with-engine.")
        found: list[tuple[str, Sequence[int], Sequence[MediaSpan]] | VlmtuiError] = []
        async with self.open_engine(model) as engine:
            require_capability(engine.info, "render_only")
            for prompt in prompts:
                try:
                    request = make_request(model.family, prompt.turns, Sampling(), mode=prompt.mode)
                    ready = await rendered_prompt(engine, msgspec.structs.replace(request, only_render=True))
                except VlmtuiError as error:
                    found.append(error)
                    continue
                found.append((ready.prompt, ready.token_ids, ready.media))
        return found


def write_golden(folder: Path, golden: Golden, *, slug: str = "") -> Path:
    """Write a golden file into the model's folder below `folder`, which `slug` may name. Raises VlmtuiError."""
    path = golden_path(folder, slug or golden.model, golden.case, golden.mode)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise bad_input(f"Can't create {path.parent}.", detail=str(error)) from error
    write_atomically(path, encode_golden(golden))
    return path


def golden_path(folder: Path, model: str, case: str, mode: str) -> Path:
    """Return the file of a golden prompt: `FOLDER/Qwen--Qwen2-VL-2B-Instruct/image.chat.json`."""
    plain = [one for one in model.replace("\\", "/").split("/") if one.strip(".")]
    name = "--".join("".join(char if char.isalnum() or char in "._-" else "-" for char in one) for one in plain)
    return folder / (name or "model") / f"{case}.{mode}.json"


def golden_files(folder: Path) -> list[Path]:
    """Return the golden files below a folder, sorted. Raises VlmtuiError if there are none."""
    found = sorted(folder.glob("*/*.json")) or sorted(folder.glob("*.json"))
    if not found:
        raise bad_input(f"{folder} has no golden prompts.", hint="`vlmtui golden record` makes them.")
    return found


def model_name(name: str, path: Path) -> str:
    """Return the model's name, a relative folder's from here."""
    return str((path.parent / name).resolve()) if name.startswith((".", os.sep)) else name


def _golden(
    name: str, prompt: PromptToRecord, by: By, text: str, ids: Sequence[int], spans: Sequence[MediaSpan]
) -> Golden:
    attachments = all_attachments(prompt.turns)
    return Golden(
        model=name,
        case=prompt.case,
        mode=prompt.mode,
        by=by,
        conversation=tuple(_turns(prompt.turns)),
        prompt=text_lines(text),
        token_ids=folded_ids(ids),
        media=tuple(_media(attachments, prompt.files, spans)),
    )


def _media(
    attachments: Sequence[Attachment], files: Sequence[str], spans: Sequence[MediaSpan]
) -> Iterator[GoldenMedium]:
    numbers: dict[Modality, int] = {}
    for attachment, file in zip(attachments, files, strict=True):
        modality = attachment.modality
        index = numbers[modality] = numbers.get(modality, -1) + 1
        span = next((one for one in spans if (one.modality, one.index) == (modality, index)), None)
        empty = MediaSpan(modality=modality, index=index, offset=0, length=0, tokens=0)
        yield medium_of(span or empty, file, attachment.sha256)


def _turns(turns: Sequence[Turn]) -> Iterator[GoldenTurn]:
    number = -1
    for turn in turns:
        parts = []
        for part in turn.parts:
            if isinstance(part, Media):
                number += 1
                parts.append(GoldenPart(media=number))
            else:
                parts.append(GoldenPart(text=part.text))
        yield GoldenTurn(turn.role, tuple(parts))


def _part(part: GoldenPart, staged: Sequence[Attachment]) -> Part:
    if part.media is None:
        return Text(part.text or "")
    if part.media < 0:
        raise IndexError
    return Media(staged[part.media])


def _case(model: Model, prompt: PromptToRecord, name: str) -> PromptCase:
    """Return what the reader needs to make a prompt as the engine would."""
    family = model.family
    images = sum(item.modality == "image" for item in all_attachments(prompt.turns))
    arguments = settings_of(family, images)
    made = chat_prompt(family, prompt.turns) if prompt.mode == "chat" else raw_prompt(family, prompt.turns)
    match made:
        case ChatPrompt():
            return PromptCase(
                name=name,
                messages=in_each_form(family, name, made.turns),
                chat_template=made.chat_template,
                fallback_template=made.fallback_template,
                attachments=all_attachments(made.turns),
                processor_arguments=arguments,
            )
        case MessagesPrompt():
            messages = tuple(msgspec.to_builtins(message) for message in made.messages)
            return PromptCase(
                name=name,
                messages=RenderCase(name, dict.fromkeys(FORMS, messages)),
                chat_template=made.chat_template,
                attachments=made.attachments,
                adds_special=True,
                processor_arguments=arguments,
            )
        case RawPrompt():
            return PromptCase(
                name=name,
                text=made.text,
                attachments=made.attachments,
                adds_special=True,
                processor_arguments=arguments,
            )
