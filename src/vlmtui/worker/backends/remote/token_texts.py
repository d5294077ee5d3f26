"""The texts of a server's tokens, asked for once each, and where media are among the prompt's tokens."""

from __future__ import annotations

import asyncio
import difflib
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from vlmtui.domain.attachment import Attachment, Modality
from vlmtui.domain.generation import MediaSpan, Token, Vocabulary
from vlmtui.errors import VlmtuiError
from vlmtui.worker.backends.remote.http_api import ServerApi
from vlmtui.worker.backends.remote.http_errors import Unanswered

_AT_ONCE = 16
"""Requests for the texts of tokens at the same time."""
_DEAF_TIMES = 10
"""How many times as long as a question waited in vain no other is asked: a server that stands still may have sent
hundreds of tokens before, and each would wait."""
_PROMPTS_MAX = 64
"""Prompts whose text is remembered."""


class TokenTexts:
    """Asks a server for the texts of tokens, and for the tokens of texts."""

    def __init__(self, api: ServerApi, model: str) -> None:
        self._api = api
        self._model = model
        self._known: dict[int, Token] = {}
        self._prompts: dict[tuple[int, ...], str] = {}
        self._special: dict[str, int | None] = {}
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._deaf_until_s = float("-inf")
        """When it is asked again, after a question that was not answered in time."""

    async def entries(self, ids: Iterable[int]) -> Vocabulary:
        """Return the tokens with these ids. A token that the server does not tell, or not in time, is left out: names
        do not hold up an answer."""
        wanted = set(ids)
        await asyncio.gather(*(self._ask(one) for one in wanted - self._known.keys()))
        return {one: self._known[one] for one in wanted if one in self._known}

    async def text_of(self, ids: Sequence[int], seconds: float) -> str:
        """Return these tokens decoded together, special ones kept. Raises VlmtuiError, also when the server does not
        answer in so many seconds."""
        key = tuple(ids)
        if key not in self._prompts:
            while len(self._prompts) >= _PROMPTS_MAX:
                del self._prompts[next(iter(self._prompts))]
            self._prompts[key] = await self._decoded(key, seconds)
        return self._prompts[key]

    async def ids_of(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return the tokens of a text. Raises VlmtuiError."""
        body = {"model": self._model, "prompt": text, "add_special_tokens": add_special_tokens}
        found = await self._api.post("/tokenize", body)
        tokens = found.get("tokens") if isinstance(found, dict) else None
        return [one for one in tokens if isinstance(one, int)] if isinstance(tokens, list) else []

    async def id_of(self, text: str) -> int | None:
        """Return the id of a single token; None where the text is none, or several. Raises VlmtuiError."""
        if text not in self._special:
            ids = await self.ids_of(text, add_special_tokens=False)
            self._special[text] = ids[0] if len(ids) == 1 else None
        return self._special[text]

    async def _ask(self, token_id: int) -> None:
        async with self._gate:
            if time.monotonic() < self._deaf_until_s:
                return
            try:
                text = await self._decoded((token_id,), self._api.stall_s)
            except VlmtuiError as error:
                if isinstance(error, Unanswered):
                    self._deaf_until_s = time.monotonic() + _DEAF_TIMES * self._api.stall_s
                return
        self._known[token_id] = Token(text=text, special=is_special(text))

    async def _decoded(self, ids: tuple[int, ...], seconds: float) -> str:
        found = await self._api.post("/detokenize", {"model": self._model, "tokens": list(ids)}, seconds=seconds)
        text: Any = found.get("prompt") if isinstance(found, dict) else None
        return text if isinstance(text, str) else ""


class AnswerText:
    """The text of an answer that comes as tokens alone."""

    def __init__(self, texts: TokenTexts, seconds: float) -> None:
        """`seconds`: the longest that the server may take to tell a text."""
        self._texts = texts
        self._seconds = seconds
        self._ids: list[int] = []
        self._shown = 0
        """Characters given so far."""

    async def add(self, ids: Sequence[int]) -> str:
        """Return the text that these tokens add; what is no whole character yet comes with a later one."""
        known = await self._texts.entries(ids)
        self._ids += [one for one in ids if not (one in known and known[one].special)]
        text = (await self._texts.text_of(self._ids, self._seconds)).rstrip("\ufffd") if self._ids else ""
        fresh, self._shown = text[self._shown :], max(self._shown, len(text))
        return fresh


def is_special(text: str) -> bool:
    """Whether a token looks like a special one: the server does not tell."""
    return len(text) > 2 and text[0] + text[-1] in ("<>", "[]") and not any(map(str.isspace, text))


def spans_between(
    written: Sequence[int], given: Sequence[int], attachments: Sequence[Attachment]
) -> tuple[MediaSpan, ...]:
    """Return where the media are in the prompt as it was given, by what it has more than the prompt as written, with
    one placeholder for each. Empty where that does not show one place for each attachment."""
    runs = _repeated(written, given)
    if runs is None or len(runs) != len(attachments):
        runs = _added(written, given)
    return spans_at(runs, given, attachments)


def spans_at(
    runs: Sequence[tuple[int, int]], given: Sequence[int], attachments: Sequence[Attachment]
) -> tuple[MediaSpan, ...]:
    """Return the spans of these runs (start, end) of tokens; empty unless there is one for each attachment."""
    if len(runs) != len(attachments):
        return ()
    numbers: Counter[Modality] = Counter()
    spans: list[MediaSpan] = []
    for (start, end), item in zip(runs, attachments, strict=True):
        tokens = Counter(given[start:end]).most_common(1)[0][1]
        spans.append(_span(item.modality, numbers[item.modality], start, end - start, tokens))
        numbers[item.modality] += 1
    return tuple(spans)


def expansions(ids: Sequence[int], vocabulary: Vocabulary, written: str) -> list[tuple[int, int]] | None:
    """Return the runs of one token that are longer than in the text as written, with one placeholder for each medium.
    None unless the texts of all other tokens, one after another, are that text, and where two placeholders stand side
    by side: which of them a run belongs to cannot be seen."""
    runs: list[tuple[int, int]] = []
    position = 0
    for index, token in enumerate(ids):
        text = vocabulary[token].text if token in vocabulary else ""
        if text and written.startswith(text, position):
            position += len(text)
        elif index == 0 or token != ids[index - 1]:
            return None
        elif runs and runs[-1][1] == index:
            runs[-1] = (runs[-1][0], index + 1)
        elif index > 1 and token == ids[index - 2]:
            return None
        else:
            runs.append((index - 1, index + 1))
    return runs if position == len(written) else None


def _repeated(written: Sequence[int], given: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return the runs of one token that are longer in `given`; None where the two differ in anything else."""
    runs: list[tuple[int, int]] = []
    one, other = 0, 0
    while one < len(written) and other < len(given) and written[one] == given[other]:
        until, end = _run_end(written, one), _run_end(given, other)
        if end - other > until - one:
            runs.append((other, end))
        elif end - other < until - one:
            return None
        one, other = until, end
    return runs if one == len(written) and other == len(given) else None


def _run_end(ids: Sequence[int], start: int) -> int:
    end = start + 1
    while end < len(ids) and ids[end] == ids[start]:
        end += 1
    return end


def _added(written: Sequence[int], given: Sequence[int]) -> list[tuple[int, int]]:
    """Return the runs that `given` has more than `written`, as far as a difference tells them."""
    runs: list[tuple[int, int]] = []
    matcher = difflib.SequenceMatcher(None, written, given, autojunk=False)
    for operation, _, _, start, end in matcher.get_opcodes():
        if operation == "equal" or start == end:
            continue
        # A placeholder that is repeated: its first token was matched.
        while start > 0 and given[start - 1] == given[start] and (not runs or runs[-1][1] < start):
            start -= 1
        while end < len(given) and given[end] == given[end - 1]:
            end += 1
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        else:
            runs.append((start, end))
    return runs


def reported_spans(placeholders: object, ids: Sequence[int]) -> tuple[MediaSpan, ...]:
    """Return the spans that a server tells: `{"image": [{"offset": 6, "length": 36}]}`."""
    spans: list[MediaSpan] = []
    for modality in get_args(Modality):
        listed = placeholders.get(modality) if isinstance(placeholders, dict) else None
        for index, one in enumerate(listed if isinstance(listed, list) else ()):
            match one:
                case {"offset": int(offset), "length": int(length)} if 0 <= offset < offset + length <= len(ids):
                    tokens = Counter(ids[offset : offset + length]).most_common(1)[0][1]
                    spans.append(_span(modality, index, offset, length, tokens))
    return tuple(sorted(spans, key=lambda span: span.offset))


def _span(modality: Modality, index: int, offset: int, length: int, tokens: int) -> MediaSpan:
    return MediaSpan(modality=modality, index=index, offset=offset, length=length, tokens=tokens)
