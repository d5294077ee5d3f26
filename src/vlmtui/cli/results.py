"""What came of asking, as JSON and as documents."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from vlmtui.cli.asking import Asked
from vlmtui.cli.output import note
from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import all_attachments
from vlmtui.domain.engine import (
    Cancelled,
    ChatPrompt,
    EngineInfo,
    Failed,
    Finished,
    Prompt,
    TokenLogprob,
    Vocabulary,
)
from vlmtui.engine.session import Answer
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.inspection.made import comparison_of, side_of, texts_of
from vlmtui.inspection.replay import Comparison, MediaRecord, Side, media_record, to_json

EXPORTS = (".md", ".html", ".json")
_INSIDE_MAX = 100_000_000
"""Bytes of an attachment up to which a JSON document holds it; of larger ones only the hash."""


def answer_json(model: str, answer: Answer, load_s: float) -> dict[str, object]:
    """What `ask --json` prints. `load_s`: seconds until the engine was ready to be asked."""
    outcome = answer.outcome
    timings = answer.timings
    return {
        "model": model,
        "answer": answer.text,
        "finish_reason": _finish_reason(answer),
        "usage": {
            "prompt_tokens": answer.usage.prompt_tokens,
            "completion_tokens": answer.usage.completion_tokens,
            "image_tokens": answer.usage.image_tokens,
        },
        "timings": {
            "load_s": _milliseconds(load_s),
            "ttft_s": _milliseconds(timings.ttft_s if timings else None),
            "total_s": _milliseconds(timings.total_s if timings else None),
        },
        "prompt": answer.prompt.prompt if answer.prompt else None,
        "stop": outcome.stop if isinstance(outcome, Finished) else None,
    }


def tokens_json(answer: Answer) -> dict[str, object]:
    """What else there is to say where tokens are looked at."""
    found: dict[str, object] = {
        "prompt_token_ids": list(answer.prompt.token_ids) if answer.prompt else None,
        "answer_token_ids": answer.token_ids,
    }
    if answer.logprobs:
        found["logprobs"] = [_logprob_json(one, answer.vocabulary) for one in answer.logprobs]
    return found


def difference_json(comparison: Comparison) -> dict[str, object]:
    """How the second answer differs from the first. The answers are identical where every token is."""
    found = comparison.difference
    if found is None or any(side.failure for side in comparison.sides):
        empty = ("prompts_identical", "answers_identical", "first_divergence", "prompt_first_divergence")
        return dict.fromkeys(empty)
    return {
        "prompts_identical": found.prompts_identical,
        "answers_identical": found.answers_identical and found.answer_first_divergence is None,
        "first_divergence": found.answer_first_divergence,
        "prompt_first_divergence": found.prompt_first_divergence,
    }


def compared(
    info: EngineInfo, asked: Sequence[Asked], answers: Sequence[Answer], *, generation_prompt: str
) -> Comparison:
    """All that was asked and answered, without the attachments' bytes."""
    sides = [_side(one, answer) for one, answer in zip(asked, answers, strict=True)]
    attachments = attachments_of(asked[0].request.prompt)
    return comparison_of(info, asked[0].request.sampling, attachments, sides, generation_prompt=generation_prompt)


def attachments_of(prompt: Prompt) -> tuple[Attachment, ...]:
    """In the order of their placeholders."""
    return all_attachments(prompt.turns) if isinstance(prompt, ChatPrompt) else prompt.attachments


def export_suffix(name: str) -> str:
    """Which document a file's name asks for. Raises VlmtuiError(BAD_USAGE) for others."""
    suffix = Path(name).suffix.lower()
    if suffix not in EXPORTS:
        message = f"{name} could be any document: its name must end with {', '.join(EXPORTS[:-1])} or {EXPORTS[-1]}."
        raise VlmtuiError(ErrorKind.BAD_USAGE, message)
    return suffix


def export(name: str, comparison: Comparison, attachments: Sequence[Attachment]) -> None:
    """Write the document to a file. Raises VlmtuiError."""
    paths = {item.sha256: Path(item.path) for item in attachments}

    def read(item: MediaRecord) -> bytes | None:
        try:
            return paths[item.sha256].read_bytes()
        except (KeyError, OSError):
            return None

    match export_suffix(name):
        case ".md":
            from vlmtui.inspection.as_markdown import export_markdown

            data = export_markdown(comparison).encode("utf-8", "replace")
        case ".html":
            from vlmtui.inspection.as_html import export_html

            data = export_html(comparison, read).encode("utf-8", "replace")
        case _:
            data = to_json(_with_content(comparison, attachments))
    write_file(Path(name), data)
    note(f"Written: {name}")


def write_file(path: Path, content: bytes | Path) -> None:
    """Write a file of the user's, or copy one there, whole or not at all; one that is there is replaced.

    It is the owner's alone (0600). Raises VlmtuiError.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, made = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
        temporary = Path(made)
        with os.fdopen(descriptor, "wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                with content.open("rb") as source:
                    shutil.copyfileobj(source, file)
        temporary.replace(path)
    except (OSError, ValueError) as error:
        raise bad_input(f"{path} cannot be written.", detail=str(error)) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _side(asked: Asked, answer: Answer) -> Side:
    return side_of(
        asked.mode,
        answer.prompt,
        text=answer.text,
        token_ids=answer.token_ids,
        vocabulary=answer.vocabulary,
        logprobs=answer.logprobs,
        outcome=answer.outcome,
        label="" if asked.label == asked.mode else asked.label,
        seed=asked.seed,
        temperature=asked.temperature,
        request=asked.request.prompt,
    )


def _with_content(comparison: Comparison, attachments: Sequence[Attachment]) -> Comparison:
    records = []
    for item in attachments:
        path = Path(item.path)
        try:
            content = path.read_bytes() if path.stat().st_size <= _INSIDE_MAX else None
        except OSError as error:
            raise bad_input(f"The stored file of {item.name} is gone.", detail=str(error)) from error
        if content is None:
            note(f"warning: {item.name} is too large for the document: it is named by its hash alone.")
        records.append(media_record(item, content))
    return msgspec.structs.replace(comparison, attachments=tuple(records))


def _logprob_json(one: TokenLogprob, vocabulary: Vocabulary) -> dict[str, object]:
    def token(token_id: int, logprob: float) -> dict[str, object]:
        return {"token_id": token_id, "token": texts_of((token_id,), vocabulary)[0], "logprob": logprob}

    return {
        **token(one.token_id, one.logprob),
        "top": [token(other.token_id, other.logprob) for other in one.top],
    }


def _milliseconds(seconds: float | None) -> float | None:
    """The seconds, as exact as the clock is worth."""
    return None if seconds is None else round(seconds, 3)


def _finish_reason(answer: Answer) -> str:
    match answer.outcome:
        case Finished(finish_reason=reason):
            return reason
        case Cancelled():
            return "cancelled"
        case Failed() | None:
            return "failed"
