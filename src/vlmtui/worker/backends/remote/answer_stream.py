"""Reads the events of an answer, as chats and requests by token ids stream them, and collects them to deltas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from vlmtui.domain.generation import Candidate, Delta, TokenLogprob, Usage
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.text import is_number
from vlmtui.worker.backends.remote.token_texts import AnswerText, TokenTexts

_TOKEN = "token_id:"
_COUNT_MAX = 10**9


class StreamedPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one event adds to an answer."""

    id: str = ""
    """Of the request that it answers."""
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: str | None = None
    """`stop`, `length`, or another word that is no end of a whole answer."""
    stop: str | int | None = None
    """The stop string or token that ended it."""
    prompt_ids: tuple[int, ...] | None = None
    """The prompt's tokens, once, where the server tells them."""
    prompt_text: str | None = None
    """The prompt as the server's template wrote it, with one placeholder for each attachment."""
    placeholders: object = None
    """Where media are, as requests by token ids tell it."""
    usage: Usage | None = None
    """Counts, near the end."""
    queued_s: float | None = None
    """Seconds that the request waited for others, near the end, where the server tells them."""


def part_of(event: dict[str, Any]) -> StreamedPart:
    """Read an event. Fields of other kinds than expected count as missing: the server may be another one."""
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    found = choice.get("delta")
    delta = found if isinstance(found, dict) else {}
    text = delta.get("content", choice.get("text"))
    prompt_text = event.get("prompt_text")
    finish, stop = choice.get("finish_reason"), choice.get("stop_reason")
    number = event.get("id", event.get("request_id"))
    return StreamedPart(
        id=number if isinstance(number, str) else "",
        text=text if isinstance(text, str) else "",
        token_ids=_ids(choice.get("token_ids")) or (),
        logprobs=tuple(_logprobs(choice.get("logprobs"))),
        finish=finish if isinstance(finish, str) else None,
        stop=stop if isinstance(stop, str | int) else None,
        prompt_ids=_ids(event.get("prompt_token_ids", choice.get("prompt_token_ids"))),
        prompt_text=prompt_text if isinstance(prompt_text, str) else None,
        placeholders=event.get("mm_placeholders"),
        usage=_usage(event.get("usage")),
        queued_s=_queued(event.get("metrics")),
    )


def of_another(shown: str) -> VlmtuiError:
    """Return the error for an event that belongs to the answer of another request."""
    message = f"{shown} sent parts of another answer within this one."
    return VlmtuiError(ErrorKind.PROTOCOL, message, hint="Is a proxy in between that mixes them up?")


def unfinished(reason: str | None, shown: str) -> VlmtuiError:
    """Return what an end means that is no end of a whole answer. `[DONE]` alone proves nothing."""
    if reason == "abort":
        message = f"{shown} gave this answer up, though the connection holds."
        hint = "One of its engines may have died. Send the message again."
    elif reason:
        message, hint = f"{shown} ended the answer for a reason unknown here.", "Send the message again."
    else:
        message = f"{shown} ended the stream in the middle of the answer."
        hint = "What came is kept. Send the message again."
    return VlmtuiError(ErrorKind.NO_NETWORK, message, detail=f"finish reason: {reason}", hint=hint)


def _usage(found: object) -> Usage | None:
    if not isinstance(found, dict):
        return None
    details = found.get("prompt_tokens_details")
    return Usage(
        prompt_tokens=_count(found, "prompt_tokens"),
        completion_tokens=_count(found, "completion_tokens"),
        cached_tokens=_count(details, "cached_tokens") if isinstance(details, dict) else 0,
    )


def _count(found: dict[str, Any], name: str) -> int:
    value = found.get(name)
    return value if isinstance(value, int) and 0 <= value < _COUNT_MAX else 0


def _queued(found: object) -> float | None:
    value = found.get("queue_time_ms") if isinstance(found, dict) else None
    return value / 1000 if isinstance(value, int | float) and 0 <= value < _COUNT_MAX else None


def _ids(found: object) -> tuple[int, ...] | None:
    return tuple(found) if isinstance(found, list) and all(isinstance(one, int) for one in found) else None


def _logprobs(found: object) -> Iterator[TokenLogprob]:
    """Tokens are told as `token_id:338`, which was asked for, or by `token_id`."""
    listed = found.get("content") if isinstance(found, dict) else None
    for one in listed if isinstance(listed, list) else ():
        own, top = _candidate(one), one.get("top_logprobs") if isinstance(one, dict) else None
        if own is not None:
            others = tuple(filter(None, map(_candidate, top if isinstance(top, list) else ())))
            yield TokenLogprob(token_id=own.token_id, logprob=own.logprob, top=others)


def _candidate(found: object) -> Candidate | None:
    match found:
        case {"token_id": int(token_id), "logprob": float(value) | int(value)}:
            return Candidate(token_id=token_id, logprob=float(value))
        case {"token": str(token), "logprob": float(value) | int(value)} if token.startswith(_TOKEN):
            number = token.removeprefix(_TOKEN)
            return Candidate(token_id=int(number), logprob=float(value)) if is_number(number) else None
        case _:
            return None


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
