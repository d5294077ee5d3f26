"""Reads the events of an answer, in the shapes in which servers send them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from vlmtui.domain.generation import Candidate, TokenLogprob, Usage
from vlmtui.domain.thinking import COMMON_TAGS, ThinkingTags
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.text import is_number, one_line

_TOKEN = "token_id:"
_COUNT_MAX = 10**9
_SHOWN_MAX = 400
_DEPTH_MAX = 6
"""The most parts of a message within each other."""
_REASONING = ("reasoning", "reasoning_content", "thinking", "reasoning_details")
"""The fields with reasoning. Servers that send several of them repeat the same text, so the first counts: vLLM sends
`reasoning`, with `reasoning_content` for older clients; OpenRouter `reasoning` and `reasoning_details`."""
_FINISH = {
    "stop": {"stop", "eos", "eos_token", "end", "end_turn", "stop_sequence", "complete", "completed", "finished"},
    "length": {"length", "max_tokens", "max_length", "max_output_tokens", "model_length"},
    "content_filter": {"content_filter", "safety", "recitation", "sensitive", "refusal", "blocklist"},
}
"""The finish reasons of other servers by OpenAI's names: those of TGI, Anthropic, Gemini, Mistral, Cohere and GLM."""


class StreamedPart(msgspec.Struct, frozen=True, kw_only=True):
    id: str = ""
    text: str = ""
    """The event's text; reasoning that has its own field is between the family's tags."""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: str | None = None
    """The finish reason: `stop`, `length`, or another for an incomplete answer."""
    stop: str | int | None = None
    """The stop string, or the id of the stop token."""
    prompt_ids: tuple[int, ...] | None = None
    """The prompt's token ids, if the server reports them; in one event of the stream."""
    prompt_text: str | None = None
    """The text that the server's chat template rendered, with one placeholder for each attachment."""
    placeholders: object = None
    """vLLM's field `mm_placeholders`, for `reported_spans`."""
    usage: Usage | None = None
    """Token counts; in one of the last events."""
    queued_s: float | None = None
    """Seconds in the server's queue, if it reports them; in one of the last events."""


class AnswerReader:
    """Reads the events of one answer in order. A field of an unexpected type counts as missing, since the server may
    not be vLLM.

    `tags`: put around reasoning that has a field of its own, as the model itself would write them."""

    def __init__(self, tags: ThinkingTags = COMMON_TAGS) -> None:
        self._tags = tags
        self._index: int | None = None
        """The index of the choice that is read; None: no event had one."""
        self._is_thinking = False
        """True between the tags."""
        self._last = ""
        """The last character so far."""
        self._half = ""
        """The first half of a character (a surrogate), whose second half the next event brings."""
        self._refusal = ""
        self._calls = ""
        """The calls of tools: `name {"argument": 1}`."""

    def read(self, event: dict[str, Any]) -> StreamedPart:
        choice = self._choice(event.get("choices"))
        reasoning, content = self._texts(choice)
        finish, stop, prompt_text = choice.get("finish_reason"), choice.get("stop_reason"), event.get("prompt_text")
        number = event.get("id", event.get("request_id"))
        return StreamedPart(
            id=number if isinstance(number, str) else "",
            text=self._whole(self._tagged(reasoning, content)),
            token_ids=_ids(choice.get("token_ids")) or (),
            logprobs=tuple(_logprobs(choice.get("logprobs"))),
            finish=_finish(finish) if isinstance(finish, str) and finish else None,
            stop=valid_text(stop) if isinstance(stop, str) else stop if isinstance(stop, int) else None,
            prompt_ids=_ids(event.get("prompt_token_ids", choice.get("prompt_token_ids"))),
            prompt_text=valid_text(prompt_text) if isinstance(prompt_text, str) else None,
            placeholders=event.get("mm_placeholders"),
            usage=_usage(event.get("usage")),
            queued_s=_queued(event.get("metrics")),
        )

    def check_end(self, reason: str | None, shown: str) -> None:
        """Raise VlmtuiError unless the answer is complete. `reason`: the finish reason. `shown`: the server's
        address."""
        if self._calls:
            message, hint = "The model called a tool, and vlmtui has none.", "Ask it to answer without tools."
            raise VlmtuiError(ErrorKind.NO_ANSWER, message, detail=_short(self._calls), hint=hint)
        if self._refusal:
            raise VlmtuiError(ErrorKind.NO_ANSWER, "The model refused to answer.", detail=_short(self._refusal))
        if self._index is None:
            message = f"{shown} sent no answer in OpenAI's format: no event has choices."
            raise VlmtuiError(ErrorKind.NO_ANSWER, message, hint="Give the address of its OpenAI-compatible API.")
        if reason not in ("stop", "length"):
            raise _unfinished(reason, shown)

    def _choice(self, choices: object) -> dict[str, Any]:
        """Return the choice that is read. An answer has one choice; a server may send more, in any order."""
        found = [one for one in choices if isinstance(one, dict)] if isinstance(choices, list) else []
        numbered = {one["index"] if isinstance(one.get("index"), int) else 0: one for one in reversed(found)}
        if numbered and self._index is None:
            self._index = min(numbered)
        return numbered.get(self._index, {})

    def _texts(self, choice: dict[str, Any]) -> tuple[str, str]:
        """Return the reasoning and the content of a choice. A whole message counts only if no text came before it."""
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = choice.get("message") if not self._last else None
        if not isinstance(delta, dict):
            return "", _text(choice.get("text"))
        self._note_instead(delta)
        content = delta.get("content")
        parts = content if isinstance(content, list) else [content]
        thoughts = [one for one in parts if isinstance(one, dict) and one.get("type") in ("thinking", "reasoning")]
        reasoning = next(filter(None, (_text(delta.get(name)) for name in _REASONING)), "")
        return reasoning + _text(thoughts), _text([one for one in parts if one not in thoughts])

    def _note_instead(self, delta: dict[str, Any]) -> None:
        """Note what a model sends instead of an answer: a refusal, or calls of tools."""
        self._refusal = (self._refusal + _text(delta.get("refusal")))[:_SHOWN_MAX]
        calls = delta.get("tool_calls")
        calls = [one.get("function") for one in calls if isinstance(one, dict)] if isinstance(calls, list) else []
        for call in (*calls, delta.get("function_call")):
            if isinstance(call, dict):
                name, arguments = _text(call.get("name")), _text(call.get("arguments"))
                self._calls = (self._calls + (f"\n{name} " if name else "") + arguments)[:_SHOWN_MAX]

    def _tagged(self, reasoning: str, content: str) -> str:
        """Return the text that an event adds: reasoning between its tags, which have lines of their own."""
        found, tags = "", self._tags
        if reasoning and not self._is_thinking:
            self._is_thinking = True
            found = tags.open if (tags.open + reasoning[0]).endswith("\n") else f"{tags.open}\n"
        found += reasoning
        if content and self._is_thinking:
            self._is_thinking = False
            found += "" if (self._last + found).endswith("\n") else "\n"
            found += tags.close if content.startswith("\n") else f"{tags.close}\n\n"
        found += content
        self._last = found[-1:] or self._last
        return found

    def _whole(self, text: str) -> str:
        """Return the text so far without half a character at its end, which the next event completes."""
        text, self._half = self._half + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return valid_text(text)


def valid_text(text: str) -> str:
    """Return a text with each pair of surrogates joined to its character. Half a pair becomes `?`."""
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return joined.encode(errors="replace").decode()


def _text(found: object, depth: int = 0) -> str:
    """Return the text of a field: a string, a part of a message with its text, or a list of these."""
    match found:
        case str():
            return found
        case _ if depth > _DEPTH_MAX:
            return ""
        case {"text": inner} | {"thinking": inner} | {"summary": inner} | {"content": inner} | {"refusal": inner}:
            return _text(inner, depth + 1)
        case [*parts]:
            return "".join(_text(part, depth + 1) for part in parts)
        case _:
            return ""


def _short(text: str) -> str:
    return one_line(valid_text(text).strip())


def _finish(reason: str) -> str:
    """Return `stop`, `length` or `content_filter` for the names that servers have for these; others unchanged."""
    name = reason.lower().replace("-", "_")
    for kind, names in _FINISH.items():
        if name in names:
            return kind
    return valid_text(reason)


def _unfinished(reason: str | None, shown: str) -> VlmtuiError:
    """Return the error for an answer that ended without the finish reason `stop` or `length`."""
    kind, hint = ErrorKind.NO_NETWORK, "Send the message again."
    if reason == "abort":
        message = f"{shown} gave this answer up, though the connection holds."
        hint = "One of its engines may have died. Send the message again."
    elif reason == "content_filter":
        kind, message = ErrorKind.NO_ANSWER, "The server's content filter ended the answer."
        hint = "What came is kept. Ask in other words."
    elif reason:
        kind, message = ErrorKind.NO_ANSWER, f"{shown} ended the answer for another reason: {_short(reason)[:80]}."
    else:
        message = f"{shown} ended the stream in the middle of the answer."
        hint = "What came is kept. Send the message again."
    return VlmtuiError(kind, message, detail=f"finish reason: {reason}", hint=hint)


def _usage(found: object) -> Usage | None:
    if not isinstance(found, dict) or not (_count(found, "prompt_tokens") or _count(found, "completion_tokens")):
        return None
    details = found.get("prompt_tokens_details")
    return Usage(
        prompt_tokens=_count(found, "prompt_tokens"),
        completion_tokens=_count(found, "completion_tokens"),
        cached_tokens=_count(details, "cached_tokens") if isinstance(details, dict) else 0,
    )


def _count(found: dict[str, Any], name: str) -> int:
    value = found.get(name)
    return int(value) if isinstance(value, int | float) and 0 <= value < _COUNT_MAX else 0


def _queued(found: object) -> float | None:
    value = found.get("queue_time_ms") if isinstance(found, dict) else None
    return value / 1000 if isinstance(value, int | float) and 0 <= value < _COUNT_MAX else None


def _ids(found: object) -> tuple[int, ...] | None:
    return tuple(found) if isinstance(found, list) and all(isinstance(one, int) for one in found) else None


def _logprobs(found: object) -> Iterator[TokenLogprob]:
    """Yield the log-probabilities. A token's id is in its text, `token_id:338`, as the request asks for, or in a field
    `token_id`."""
    listed = found.get("content") if isinstance(found, dict) else None
    for one in listed if isinstance(listed, list) else ():
        own, top = _candidate(one), one.get("top_logprobs") if isinstance(one, dict) else None
        if own is not None:
            others = tuple(filter(None, map(_candidate, top if isinstance(top, list) else ())))
            yield TokenLogprob(token_id=own.token_id, logprob=own.logprob, top=others)


def _candidate(found: object) -> Candidate | None:
    match found:
        case {"logprob": int(value)} if abs(value) >= _COUNT_MAX:
            return None
        case {"token_id": int(token_id), "logprob": float(value) | int(value)}:
            return Candidate(token_id=token_id, logprob=float(value))
        case {"token": str(token), "logprob": float(value) | int(value)} if token.startswith(_TOKEN):
            number = token.removeprefix(_TOKEN)
            return Candidate(token_id=int(number), logprob=float(value)) if is_number(number) else None
        case _:
            return None
