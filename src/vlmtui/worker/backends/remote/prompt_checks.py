"""Checks of a prompt that a server would spoil without a word: placeholders too many or too few, dropped frames."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from vlmtui.domain.attachment import Attachment, Modality
from vlmtui.domain.generation import MediaSpan
from vlmtui.domain.prompt import ChatPrompt, Prompt, RawPrompt
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.text import one_line
from vlmtui.worker.backends.remote.bodies import MediaPart
from vlmtui.worker.backends.remote.http_api import ServerApi
from vlmtui.worker.backends.remote.token_texts import TokenTexts

_ONE_EACH = "Use exactly one placeholder for each attachment."
_EXPANDED = 8
"""So many in a row are an expanded one: nobody attaches as many side by side."""


class Placeholders:
    """Those of a family, by modality, as its prompts write them: `<|image_pad|>`; `{i}` stands for a number."""

    def __init__(self, texts: Mapping[Modality, Sequence[str]], ids: Mapping[int, tuple[Modality, str]]) -> None:
        self._texts = texts
        self._ids = ids

    @classmethod
    async def of(cls, texts: Mapping[Modality, Sequence[str]], tokens: TokenTexts | None) -> Placeholders:
        """tokens: to find which of them are single tokens; None where the server does not tell."""
        ids: dict[int, tuple[Modality, str]] = {}
        for modality, written in texts.items():
            for text in written:
                found = None if tokens is None or "{i}" in text else await tokens.id_of(text)
                if found is not None:
                    ids[found] = (modality, text)
        return cls(texts, ids)

    def check(self, prompt: Prompt, attachments: Sequence[Attachment]) -> None:
        """Raise VlmtuiError(PLACEHOLDER_MISMATCH) if the prompt, as written, does not go with its attachments."""
        if isinstance(prompt, RawPrompt):
            wanted = Counter(item.modality for item in attachments)
            for modality in self._texts:
                self._check_count(prompt.text, modality, wanted[modality])
        elif isinstance(prompt, ChatPrompt):
            for modality, text in self._ids.values():
                if any(text in turn.text for turn in prompt.turns):
                    raise _mismatch(f"{one_line(text)} in the text of a message would count as an attached {modality}.")

    def check_given(self, ids: Sequence[int], spans: Sequence[MediaSpan], attachments: Sequence[Attachment]) -> None:
        """Raise VlmtuiError(PLACEHOLDER_MISMATCH) if a placeholder is outside of all media's places, where these are
        known."""
        if attachments and not spans:
            return
        if len(spans) != len(attachments):
            raise _mismatch(f"The server put {len(spans)} media into the prompt, of {len(attachments)} attached.")
        covered = {place for span in spans for place in range(span.offset, span.offset + span.length)}
        for place, token in enumerate(ids):
            if token in self._ids and place not in covered:
                modality, text = self._ids[token]
                raise _mismatch(
                    f"{one_line(text)} (token {place} of the prompt) does not match any attached {modality}."
                )

    def _check_count(self, text: str, modality: Modality, wanted: int) -> None:
        forms = [re.escape(one).replace(r"\{i\}", r"\d+") for one in self._texts[modality]]
        if not forms:
            return
        form = "|".join(sorted(forms, key=len, reverse=True))
        found = sum(1 for _ in re.finditer(form, text))
        if found == wanted:
            return
        if wanted and (run := re.search(rf"({form})\1{{{_EXPANDED - 1},}}", text)):
            times = len(run[0]) // len(run[1])
            raise _mismatch(
                f"A placeholder is expanded already: {one_line(run[1])} stands {times} times in a row.",
                "The server would expand it once more. Write it once for each attachment.",
            )
        raise _mismatch(f"The prompt has {found} {modality} placeholders for {wanted} {modality}s.")


def _mismatch(message: str, hint: str = _ONE_EACH) -> VlmtuiError:
    return VlmtuiError(ErrorKind.PLACEHOLDER_MISMATCH, message, hint=hint)


_ALWAYS_KEPT = 32
"""Frames that vLLM keeps unless it is told otherwise."""
_FEWER_FRAMES = (
    "Send 32 frames or fewer (/frames), or start the server with "
    """--media-io-kwargs '{"video": {"num_frames": -1}}'."""
)


class FrameLimit:
    """Asks a server that counts tokens, once."""

    def __init__(self, api: ServerApi, model: str) -> None:
        self._api = api
        self._model = model
        self._keeps_all = False

    async def check(self, video: MediaPart) -> None:
        """Raise VlmtuiError(UNSUPPORTED) if the video takes as many tokens as its first 32 frames alone."""
        head, _, frames = (video.url or "").partition(";base64,")
        pictures = frames.split(",")
        if self._keeps_all or len(pictures) <= _ALWAYS_KEPT:
            return
        fewer = msgspec.structs.replace(video, url=f"{head};base64,{','.join(pictures[:_ALWAYS_KEPT])}", uuid="")
        whole = await self._count(msgspec.structs.replace(video, uuid=""))
        if whole is None:
            return
        if whole == await self._count(fewer):
            message = f"{self._api.shown} drops frames: of the video's {len(pictures)} it uses {_ALWAYS_KEPT}."
            raise VlmtuiError(ErrorKind.UNSUPPORTED, message, hint=_FEWER_FRAMES)
        self._keeps_all = True

    async def _count(self, video: MediaPart) -> int | None:
        body = {"model": self._model, "messages": [{"role": "user", "content": [video.part]}]}
        found = await self._api.post("/tokenize", body)
        count = found.get("count") if isinstance(found, dict) else None
        return count if isinstance(count, int) else None
