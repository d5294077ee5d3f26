"""Builds the request of an item for a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from vlmtui.domain.attachment import Attachment, VideoSampling
from vlmtui.domain.conversation import Media, Part, Text, Turn, system_turn
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.generation import GenerateRequest
from vlmtui.domain.prompt import RawPrompt
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import bad_input
from vlmtui.inspection.raw_prompt_check import check_raw
from vlmtui.registry.loader import Registry
from vlmtui.registry.prompts import check_attachments
from vlmtui.registry.schema import Family
from vlmtui.session.batch.item import BatchItem, MediaSource
from vlmtui.session.generation import PromptMode, make_request, request_for

_QUESTION = "{prompt}"


class ItemRequests(msgspec.Struct, frozen=True):
    """How the items of a batch become requests."""

    family: Family
    sampling: Sampling
    """Of items that set none."""
    mode: PromptMode = "chat"
    system: str = ""
    """Of items that have none."""
    template: str = ""
    """A raw prompt in which `{prompt}` stands for an item's question; empty: none."""
    logprobs: int | None = None
    is_prompt_read: bool = False
    """Whether prompts are wanted as texts, not only their numbers of tokens."""
    registry: Registry | None = None

    def planned(self, item: BatchItem, sampling: VideoSampling) -> GenerateRequest:
        """Return the request as it will be, without the content of the media, which the key has beside it.

        Raises VlmtuiError if the model does not take the item."""
        return self.request(item, [_blank(source, sampling) for source in item.sources])

    def request(self, item: BatchItem, attachments: Sequence[Attachment]) -> GenerateRequest:
        """Return the request. `attachments`: of the item's sources, in their order. Raises VlmtuiError."""
        sampling = msgspec.structs.replace(self.sampling, **item.sampling)
        logprobs = self.logprobs if item.logprobs is None else item.logprobs
        raw = self._raw(item)
        if raw is not None:
            check_attachments(self.family, [Turn("user", tuple(Media(one) for one in attachments))])
            prompt = RawPrompt(text=raw, attachments=tuple(attachments))
            request = request_for(prompt, self.family, sampling, logprobs=logprobs)
        else:
            turns = list(self._turns(item, iter(attachments)))
            request = make_request(self.family, turns, sampling, mode=self.mode, logprobs=logprobs)
        return msgspec.structs.replace(request, final_only=not self.is_prompt_read)

    def check_raw(self, request: GenerateRequest, info: EngineInfo) -> None:
        """Raise VlmtuiError if the placeholders of a raw prompt do not fit its attachments."""
        if not isinstance(request.prompt, RawPrompt):
            return
        found = check_raw(
            request.prompt.text,
            request.prompt.attachments,
            self.family,
            special_tokens=frozenset(info.special_tokens),
            stop_tokens=info.stop_tokens,
            bos=info.bos_token,
            adds_bos=info.adds_bos,
            families=self.registry.values() if self.registry is not None else (),
        )
        for finding in found:
            if finding.blocks:
                raise bad_input(finding.message)

    def _raw(self, item: BatchItem) -> str | None:
        if item.raw is not None or not self.template:
            return item.raw
        return self.template.replace(_QUESTION, item.question)

    def _turns(self, item: BatchItem, attachments: Iterator[Attachment]) -> Iterator[Turn]:
        if self.system and not any(message.role == "system" for message in item.messages):
            yield system_turn(self.system)
        for message in item.messages:
            parts: tuple[Part, ...] = tuple(
                Text(part) if isinstance(part, str) else Media(next(attachments)) for part in message.parts
            )
            yield Turn(message.role, parts)


def _blank(source: MediaSource, sampling: VideoSampling) -> Attachment:
    """Return an attachment that is the same for every content."""
    is_video = source.modality == "video"
    return Attachment(
        modality=source.modality,
        name="",
        path="",
        sha256="",
        width=1,
        height=1,
        size_bytes=0,
        format="",
        sampling=sampling if is_video else None,
    )
