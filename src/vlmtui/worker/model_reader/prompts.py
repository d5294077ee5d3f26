"""Makes prompts with a model's own tokenizer and processor: text, tokens, image tokens and resized sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vlmtui.domain.attachment import Attachment, Modality, VideoSampling
from vlmtui.domain.generation import MediaSpan
from vlmtui.domain.model_reading import LIMITS, Form, PromptCase, PromptReading, reads_parts
from vlmtui.worker.hf.media_spans import patch_size_of, shape_of, size_and_grid
from vlmtui.worker.model_reader.templates import render_once

_GRIDS: dict[Modality, str] = {"image": "image_grid_thw", "video": "video_grid_thw"}
_PROBLEM_MAX = 500


class PromptMaker:
    """Makes prompts as Transformers does; `template` is the model's own."""

    def __init__(self, folder: Path, tokenizer: Any, template: str | None, trusted: bool) -> None:
        self._folder = folder
        self._tokenizer = tokenizer
        self._template = template
        self._trusted = trusted
        self._processor: Any = None
        self._config: Any = None

    def make(self, case: PromptCase) -> PromptReading:
        """Make a prompt. What fails is told in the reading."""
        text, problem = self._text(case)
        if problem:
            return PromptReading(problem=problem)
        ids = tuple(self._tokenizer(text, add_special_tokens=case.adds_special).input_ids)
        if not case.attachments:
            return PromptReading(text=text, token_ids=ids)
        try:
            data = self._processed(text, case)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}".split("\n", 1)[0][:_PROBLEM_MAX]
            return PromptReading(text=text, token_ids=ids, problem=f"The processor fails: {problem}")
        expanded = [int(one) for one in data["input_ids"][0]]
        return PromptReading(
            text=text, token_ids=tuple(expanded), media=tuple(self._spans(case.attachments, expanded, data))
        )

    def _text(self, case: PromptCase) -> tuple[str, str]:
        """Return the prompt's text, or why there is none."""
        if case.messages is None:
            return case.text, ""
        template = case.chat_template or self._template or case.fallback_template
        if template is None:
            return "", "The model has no chat template."
        form: Form = "parts" if reads_parts(template) else "text"
        rendering = render_once(template, case.messages.messages[form], dict(self._tokenizer.special_tokens_map))
        if rendering.trouble is not None:
            said = rendering.message or rendering.trouble.value
            return "", LIMITS.get(rendering.trouble) or f"The chat template fails: {said}"
        return rendering.text, ""

    def _processed(self, text: str, case: PromptCase) -> Mapping[str, Any]:
        """Call the processor. Whatever it raises is its own."""
        if self._processor is None:
            from transformers import AutoConfig, AutoProcessor

            given = {"trust_remote_code": self._trusted, "local_files_only": True}
            self._processor = AutoProcessor.from_pretrained(str(self._folder), **given)
            self._config = AutoConfig.from_pretrained(str(self._folder), **given)
        media = _opened(case.attachments)
        made: Mapping[str, Any] = self._processor(
            text=[text],
            return_tensors="pt",
            add_special_tokens=case.adds_special,
            **media,
            **case.processor_arguments,
        )
        return made

    def _spans(
        self, attachments: Sequence[Attachment], ids: Sequence[int], data: Mapping[str, Any]
    ) -> Iterator[MediaSpan]:
        numbers: dict[Modality, int] = {}
        for attachment in attachments:
            modality = attachment.modality
            index = numbers[modality] = numbers.get(modality, -1) + 1
            count = sum(one.modality == modality for one in attachments)
            places = [at for at, token in enumerate(ids) if token == self._token_id(modality)]
            own = self._own_places(modality, index, count, places, data)
            item = _item(data, index, count)
            shapes = {name: shape for name, value in sorted(item.items()) if (shape := shape_of(value))}
            resized, grid = size_and_grid(item, shapes, patch_size_of(self._config))
            yield MediaSpan(
                modality=modality,
                index=index,
                offset=own[0] if own else 0,
                length=own[-1] - own[0] + 1 if own else 0,
                tokens=len(own),
                resized=resized,
                grid=grid,
                tensors=shapes,
            )

    def _token_id(self, modality: Modality) -> int | None:
        names = (f"{modality}_token_id", f"{modality}_token_index")
        for one in (self._processor, self._config):
            for name in names:
                if isinstance(found := getattr(one, name, None), int):
                    return found
        token = getattr(self._processor, f"{modality}_token", None)
        found = self._tokenizer.convert_tokens_to_ids(token) if isinstance(token, str) else None
        return found if isinstance(found, int) else None

    def _own_places(
        self, modality: Modality, index: int, count: int, places: list[int], data: Mapping[str, Any]
    ) -> list[int]:
        """Return the positions of one item's tokens: by its grid, by runs, or an equal share of all."""
        grid = data.get(_GRIDS[modality])
        merge = getattr(getattr(self._processor, f"{modality}_processor", None), "merge_size", None)
        if grid is not None and isinstance(merge, int) and len(grid) == count:
            each = [int(one.prod()) // merge**2 for one in grid]
            if sum(each) == len(places):
                return places[sum(each[:index]) : sum(each[: index + 1])]
        runs = _runs(places)
        if len(runs) == count:
            return runs[index]
        share = len(places) // count
        return places[index * share : (index + 1) * share] if share * count == len(places) else []


def _metadata(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that Transformers' `VideoMetadata` has."""
    names = ("total_num_frames", "fps", "duration", "video_backend", "frames_indices", "width", "height")
    return {name: known[name] for name in names if name in known}


def _runs(places: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for at in places:
        if runs and runs[-1][-1] + 1 == at:
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs


def _item(data: Mapping[str, Any], index: int, count: int) -> dict[str, Any]:
    """Return the tensors that belong to one of `count` items: those with an entry an item."""
    return {
        name: value[index]
        for name, value in data.items()
        if name not in ("input_ids", "attention_mask") and hasattr(value, "__len__") and len(value) == count
    }


def _opened(attachments: Sequence[Attachment]) -> dict[str, Any]:
    """Return the arguments for the processor. Raises VlmtuiError naming a file that can't be read."""
    from vlmtui.media.frames import sample_frames
    from vlmtui.media.images import open_prepared

    images = [open_prepared(one.path) for one in attachments if one.modality == "image"]
    videos = [
        sample_frames(Path(one.path), one.sampling or VideoSampling()) for one in attachments if one.modality == "video"
    ]
    given: dict[str, Any] = {}
    if images:
        given["images"] = images
    if videos:
        given |= {
            "videos": [one.frames for one in videos],
            "video_metadata": [_metadata(one.vllm_metadata()) for one in videos],
            "do_sample_frames": False,
        }
    return given
