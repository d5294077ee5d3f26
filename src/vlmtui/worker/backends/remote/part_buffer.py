"""Collects the parts of an answer until the next delta is sent: a client draws ten times a second."""

from __future__ import annotations

from collections.abc import Iterable

from vlmtui.domain.generation import Delta
from vlmtui.worker.backends.remote.answer_stream import StreamedPart
from vlmtui.worker.backends.remote.token_texts import AnswerText, TokenTexts


class PartBuffer:
    """What came since the last delta. `texts` is None where the server names no tokens; `decoded` decodes an answer
    that comes as tokens alone. `told`: ids of tokens that the client knows from the prompt."""

    def __init__(
        self,
        request_id: str,
        texts: TokenTexts | None,
        told: Iterable[int],
        *,
        decoded: AnswerText | None,
        has_logprobs: bool,
    ) -> None:
        self._request_id = request_id
        self._texts = texts
        self._told = set(told)
        self._decoded = decoded
        self._has_logprobs = has_logprobs
        self._parts: list[StreamedPart] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, part: StreamedPart) -> None:
        self._parts.append(part)

    async def flush(self) -> Delta:
        """Return everything collected as one delta, and start a new one. Raises VlmtuiError."""
        parts, self._parts = self._parts, []
        ids = tuple(token for part in parts for token in part.token_ids)
        logprobs = tuple(one for part in parts for one in part.logprobs)
        wanted = {*ids, *(one.token_id for one in logprobs), *(other.token_id for one in logprobs for other in one.top)}
        fresh = await self._texts.entries(wanted - self._told) if self._texts is not None else {}
        self._told |= fresh.keys()
        text = "".join(part.text for part in parts)
        return Delta(
            request_id=self._request_id,
            text=text if self._decoded is None else await self._decoded.add(ids),
            tokens=sum(len(part.token_ids) or 1 for part in parts),
            token_ids=ids,
            vocabulary=fresh,
            logprobs=logprobs if self._has_logprobs else (),
        )
