"""The results of a batch in the formats of evaluation tools, each a file of its own beside the output."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from vlmtui.files import new_file
from vlmtui.session.batch.item import Expectation
from vlmtui.session.batch.results import StoredResult, read_results

Pieces = Callable[[Path], Iterator[bytes]]


def write_format(name: str, output: Path) -> Path:
    """Write the results in one of `FORMATS`, and return the file. Blocking, in bounded memory. Raises VlmtuiError, and
    OSError if the output cannot be read."""
    suffix, pieces = FORMATS[name]
    target = output.with_name(f"{output.stem}{suffix}")
    with new_file(target.parent, target.name, durable=True) as new:
        for piece in pieces(output):
            new.file.write(piece)
        new.replace(target)
    return target


def _inspect(output: Path) -> Iterator[bytes]:
    """An evaluation log of inspect-ai (version 2, JSON), with one sample an item."""
    first = next(_items(output), None)
    spec = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "task": output.stem,
        "dataset": {"name": output.stem},
        "model": first.model if first is not None else "",
        "config": {},
    }
    yield b'{"version":2,"status":"success","eval":' + msgspec.json.encode(spec) + b',"samples":['
    comma = b""
    for result in _items(output):
        yield comma + msgspec.json.encode(_inspect_sample(result))
        comma = b","
    yield b"]}\n"


def _inspect_sample(result: StoredResult) -> dict[str, object]:
    usage = result.usage
    message = {"role": "assistant", "content": result.answer, "source": "generate", "model": result.model}
    stop = "max_tokens" if result.finish_reason == "length" else "stop"
    sample: dict[str, object] = {
        "id": result.id,
        "epoch": 1,
        "input": result.question,
        "target": target_of(result.expect),
        "messages": [{"role": "user", "content": result.question}, message],
        "output": {
            "model": result.model,
            "choices": [{"message": message, "stop_reason": stop}],
            "usage": {
                "input_tokens": usage.prompt_tokens,
                "output_tokens": usage.completion_tokens,
                "total_tokens": usage.prompt_tokens + usage.completion_tokens,
            },
            "time": result.timings.total_s,
        },
    }
    if result.correct is not None:
        sample["scores"] = {"expected": {"value": "C" if result.correct else "I", "answer": result.answer}}
    if result.error is not None:
        error = result.error
        sample["error"] = {"message": error.message, "traceback": error.detail, "traceback_ansi": error.detail}
    return sample


def _vlmevalkit(output: Path) -> Iterator[bytes]:
    """A table as VLMEvalKit evaluates it: index, question, answer (the expected one) and prediction."""
    yield _row("index", "question", "answer", "prediction")
    for result in _items(output):
        yield _row(result.id or "", result.question, target_of(result.expect), result.answer)


def _row(*cells: str) -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter="\t", lineterminator="\n").writerow(cells)
    return text.getvalue().encode("utf-8", "replace")


def _lmms_eval(output: Path) -> Iterator[bytes]:
    """Samples of lmms-eval, a JSON line each."""
    for number, result in enumerate(_items(output)):
        sample: dict[str, object] = {
            "doc_id": number,
            "doc": {"id": result.id, "question": result.question},
            "target": target_of(result.expect),
            "input": result.question,
            "resps": [[result.answer]],
            "filtered_resps": [result.answer],
        }
        if result.correct is not None:
            sample["exact_match"] = float(result.correct)
        yield msgspec.json.encode(sample) + b"\n"


def target_of(expect: Expectation | None) -> str:
    """Return what was expected, as one text."""
    if expect is None:
        return ""
    if expect.json_schema is not None:
        return msgspec.json.encode(expect.json_schema).decode()
    return next((text for text in (expect.exact, expect.contains, expect.regex) if text is not None), "")


def _items(output: Path) -> Iterator[StoredResult]:
    return (result for result in read_results(output) if result.id is not None)


FORMATS: dict[str, tuple[str, Pieces]] = {
    "inspect": (".inspect.json", _inspect),
    "vlmevalkit": (".vlmevalkit.tsv", _vlmevalkit),
    "lmms-eval": (".lmms-eval.jsonl", _lmms_eval),
}
"""By name: the end of the file's name, and what writes it."""
