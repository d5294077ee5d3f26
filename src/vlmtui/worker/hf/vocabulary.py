"""Token ids as text, and the deltas (pieces of an answer) that are built from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from vlmtui.domain.generation import Candidate, Delta, Token, TokenLogprob, Vocabulary
from vlmtui.domain.model_reading import bytes_of_entry

EOS_TOKEN = "@eos_token"
"""Stands for the tokenizer's EOS token in `stop_tokens` of a model family's TOML record."""
_MARK = re.compile(r"<\|[^\s<>|]+\|>|<｜[^\s<>｜]+｜>")
"""Added tokens such as <|im_end|> count as special even if the tokenizer does not flag them."""
_SPACE = "\u2581"
"""SentencePiece's space marker."""


class VocabularyReader:
    """Looks up the texts of tokens and caches them."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special = set(_special_ids(tokenizer))
        self._known: Vocabulary = {}

    def entries(self, token_ids: Iterable[int]) -> Vocabulary:
        """Return each token's entry, in order of first appearance."""
        return {token: self._entry(token) for token in dict.fromkeys(token_ids)}

    def text(self, token: int) -> str:
        """Return the token decoded on its own (untrusted text)."""
        return self._entry(token).text

    def decode(self, token_ids: Sequence[int]) -> str:
        """Decode the tokens together; special tokens are kept."""
        return str(self._tokenizer.decode(list(token_ids), skip_special_tokens=False))

    def _entry(self, token: int) -> Token:
        found = self._known.get(token)
        if found is None:
            found = self._known[token] = self._read(token)
        return found

    def _read(self, token: int) -> Token:
        text = self.decode([token])
        if token in self._special:
            return Token(text=text, special=True)
        entry = self._tokenizer.convert_ids_to_tokens([token])[0]
        if isinstance(entry, bytes):
            return Token(text=text, data=entry if "\ufffd" in text else None)
        if not isinstance(entry, str):
            return Token(text=text)
        if entry.startswith(_SPACE) and not text.startswith(" "):
            # SentencePiece drops the space at the beginning of a decoded text, but elsewhere it is part of the token.
            return Token(text=entry.replace(_SPACE, " "))
        return Token(text=text, data=bytes_of_entry(entry) if "\ufffd" in text else None)


def special_texts(tokenizer: Any) -> tuple[str, ...]:
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    flagged = (str(one) for one in added if one.special or _MARK.fullmatch(str(one)))
    return tuple(dict.fromkeys((*map(str, tokenizer.all_special_tokens), *flagged)))


def eos_ids(tokenizer: Any, configured: object) -> tuple[int, ...]:
    """Return the ids of a tokenizer's EOS token and of `configured`, the `eos_token_id` of a generation config."""
    ids = [tokenizer.eos_token_id, *(configured if isinstance(configured, list) else [configured])]
    return tuple(dict.fromkeys(token for token in ids if isinstance(token, int)))


def tokenizer_facts(tokenizer: Any, eos: Iterable[int]) -> dict[str, Any]:
    """Return the fields of EngineInfo about a tokenizer. `eos`: the ids of the tokens that end an answer."""
    texts, bos = VocabularyReader(tokenizer), getattr(tokenizer, "bos_token_id", None)
    return {
        "special_tokens": special_texts(tokenizer),
        "stop_tokens": tuple(dict.fromkeys(map(texts.text, eos))),
        "bos_token": texts.text(bos) if isinstance(bos, int) else None,
        "adds_bos": isinstance(bos, int) and list(tokenizer.encode("x"))[:1] == [bos],
    }


def stop_token_id(token: str, tokenizer: Any) -> int | None:
    """Return the id of a stop token of the model family's record, or None if the tokenizer lacks it."""
    if token == EOS_TOKEN:
        eos: int | None = tokenizer.eos_token_id
        return eos
    found = tokenizer.get_vocab().get(token)
    return None if found is None else int(found)


def _special_ids(tokenizer: Any) -> Iterator[int]:
    yield from tokenizer.all_special_ids
    for number, one in getattr(tokenizer, "added_tokens_decoder", {}).items():
        if one.special or _MARK.fullmatch(str(one)):
            yield number


_LOGPROB_MIN = -9999.0
"""Replaces minus infinity, which JSON cannot represent."""


class DeltaBuffer:
    """Collects an engine's output until it is sent as a delta. `known`: ids of tokens whose text the app already has
    from the prompt."""

    def __init__(
        self, request_id: str, vocabulary: VocabularyReader, known: Iterable[int], logprobs: int | None
    ) -> None:
        self._request_id = request_id
        self._vocabulary = vocabulary
        self._known = set(known)
        self._top_logprobs = logprobs
        self._text = ""
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self.last: int | None = None
        """The id of the answer's newest token."""

    def __bool__(self) -> bool:
        return bool(self._text or self._ids)

    def add(self, output: Any) -> None:
        """Add one of vLLM's CompletionOutputs (RequestOutputKind.DELTA)."""
        self._text += output.text
        self._ids += output.token_ids
        if self._ids:
            self.last = self._ids[-1]
        if self._top_logprobs is not None and output.logprobs:
            for token, found in zip(output.token_ids, output.logprobs, strict=False):
                self._logprobs.append(token_logprob(token, found, self._top_logprobs))

    def flush(self) -> Delta:
        named = [*self._ids, *(other.token_id for one in self._logprobs for other in one.top)]
        new = [token for token in dict.fromkeys(named) if token not in self._known]
        self._known.update(new)
        delta = Delta(
            request_id=self._request_id,
            text=self._text,
            tokens=len(self._ids),
            token_ids=tuple(self._ids),
            vocabulary=self._vocabulary.entries(new),
            logprobs=tuple(self._logprobs),
        )
        self._text, self._ids, self._logprobs = "", [], []
        return delta


def token_logprob(token: int, found: Mapping[int, Any], count: int) -> TokenLogprob:
    """Convert vLLM's log-probabilities at one position. `token`: the chosen token. `found`: by token id, vLLM's objects
    with a `logprob`. `count`: how many of the most likely tokens to return."""
    values = {one: max(float(entry.logprob), _LOGPROB_MIN) for one, entry in found.items()}
    best = sorted(values, key=lambda one: (-values[one], one != token))[:count]
    return TokenLogprob(
        token_id=token,
        logprob=values[token],
        top=tuple(Candidate(token_id=one, logprob=values[one]) for one in best),
    )
