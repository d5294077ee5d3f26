"""Results for other tools, and as a page."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.support.batches import Bench
from vlmtui.errors import ErrorKind
from vlmtui.session.batch.formats import write_format
from vlmtui.session.batch.item import Expectation
from vlmtui.session.batch.report import batch_page
from vlmtui.session.batch.scoring import is_expected
from vlmtui.session.batch.tally import DurationHistogram


@pytest.fixture
async def bench(tmp_path: Path) -> Bench:
    found = Bench(tmp_path, lambda question: ErrorKind.BAD_INPUT if question == "no" else None)
    found.write(
        {"id": "a", "prompt": "one\ttwo\n“three”", "expect": {"contains": "two"}},
        {"id": "b", "prompt": "no", "expect": "yes"},
        {"id": "c", "prompt": "free"},
        "not json",
    )
    await found.run()
    return found


def test_inspect(bench: Bench) -> None:
    path = write_format("inspect", bench.output)
    assert path.name == "out.inspect.json"
    log = json.loads(path.read_text("utf-8"))
    samples = {sample["id"]: sample for sample in log["samples"]}
    assert set(samples) == {"a", "b", "c"}
    assert samples["a"]["output"]["choices"][0]["message"]["content"] == "said: one\ttwo\n“three” 0"
    assert samples["a"]["scores"]["expected"]["value"] == "C"
    assert (samples["a"]["target"], samples["b"]["target"]) == ("two", "yes")
    assert samples["b"]["scores"]["expected"]["value"] == "I"
    assert samples["b"]["error"]["message"] == "Line 2: It was refused."
    assert "scores" not in samples["c"]


def test_vlmevalkit(bench: Bench) -> None:
    text = write_format("vlmevalkit", bench.output).read_text("utf-8")
    rows = {row["index"]: row for row in csv.DictReader(io.StringIO(text), delimiter="\t")}
    assert rows["a"]["prediction"] == "said: one\ttwo\n“three” 0"
    assert rows["a"]["question"] == "one\ttwo\n“three”"
    assert rows["b"] == {"index": "b", "question": "no", "answer": "yes", "prediction": ""}


def test_lmms_eval(bench: Bench) -> None:
    lines = write_format("lmms-eval", bench.output).read_text("utf-8").splitlines()
    samples = {sample["doc"]["id"]: sample for sample in map(json.loads, lines)}
    assert samples["a"]["filtered_resps"] == ["said: one\ttwo\n“three” 0"]
    assert (samples["a"]["exact_match"], samples["b"]["exact_match"]) == (1.0, 0.0)


def test_the_page_tells_counts_and_what_failed(bench: Bench) -> None:
    page = batch_page(bench.output)
    assert "<script" not in page
    for text in ("It was refused.", "1 of 2", "Answers a second", "line 4"):
        assert text in page


def test_percentiles_are_exact_to_five_per_cent() -> None:
    found = DurationHistogram()
    assert found.percentile(50) is None
    for number in range(1, 1001):
        found.add(number / 100)
    for percent, expected in ((50, 5.0), (90, 9.0), (99, 9.9)):
        value = found.percentile(percent)
        assert value is not None
        assert abs(value / expected - 1) < 0.05
    assert sum(count for _, count in found.bars()) == 1000


@pytest.mark.parametrize(
    ("expect", "answer", "is_right"),
    [
        (Expectation(exact="a cat"), " a cat\n", True),
        (Expectation(exact="a cat"), "A cat", False),
        (Expectation(contains="cat"), "a cat.", True),
        (Expectation(regex=r"^\d+$"), "12", True),
        (Expectation(regex=r"^\d+$", contains="3"), "12", False),
        (Expectation(json_schema={"required": ["a"]}), '{"a": 1}', True),
        (Expectation(json_schema={"required": ["a"]}), '```json\n{"a": 1}\n```', True),
        (Expectation(json_schema={"required": ["a"]}), '{"b": 1}', False),
        (Expectation(json_schema={"required": ["a"]}), "no json", False),
        (Expectation(json_schema={}), "[" * 10_000, False),
    ],
)
def test_what_is_expected(expect: Expectation, answer: str, is_right: bool) -> None:
    assert is_expected(answer, expect) is is_right
