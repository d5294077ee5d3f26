"""Results as a table and as a page, and which answers are right."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.support.batches import Bench
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.session.batch.items import Expectation
from vlmtui.session.batch.results import batch_page, write_csv


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


def test_the_table_has_a_row_for_each_item(bench: Bench) -> None:
    target = bench.folder / "out.csv"
    write_csv(bench.output, target)
    rows = {row["line"]: row for row in csv.DictReader(target.open(encoding="utf-8", newline=""))}
    assert set(rows) == {"1", "2", "3", "4"}
    assert (rows["1"]["question"], rows["1"]["answer"]) == ("one\ttwo\n“three”", "said: one\ttwo\n“three” 0")
    assert (rows["1"]["expected"], rows["1"]["correct"]) == ('{"contains":"two"}', "True")
    assert (rows["2"]["expected"], rows["2"]["error"]) == ("yes", "Line 2: It was refused.")
    assert rows["4"]["id"] == ""


def test_the_page_has_counts_and_failures(bench: Bench) -> None:
    page = batch_page(bench.output, "shapes")
    assert "<script" not in page
    for text in ("It was refused.", "1 of 2", "line 4"):
        assert text in page


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
        (Expectation(json_schema={"patternProperties": {"^a": {"type": "string"}}}), '{"ab": 1}', False),
    ],
)
def test_expectations_are_checked(expect: Expectation, answer: str, is_right: bool) -> None:
    assert expect.holds(answer) is is_right


DEEPER: dict[str, object] = {"properties": {"a": {"$ref": "#"}}}
"""Each reference leads deeper into the value."""


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        (Expectation(regex="("), "regular expression that can't be checked"),
        (Expectation(regex="(" * 9000 + ")" * 9000), "nested too deeply"),
        (Expectation(regex="a{99999999999}"), "too large"),
        (Expectation(json_schema={"$ref": "#"}), "refers to itself without end"),
        (Expectation(json_schema={"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#"}}}}), "itself"),
        (Expectation(json_schema={"properties": {"a": {"$ref": "#/typo"}}}), "$ref leads nowhere: #/typo"),
        (Expectation(json_schema={"items": {"$ref": "https://example.org/a"}}), "leads nowhere: https://example.org/a"),
        (Expectation(json_schema={"$dynamicRef": "#x"}), "$dynamicRef leads nowhere: #x"),
        (Expectation(json_schema={"properties": {"a": {"pattern": "("}}}), "is not a 'regex'"),
        (Expectation(json_schema={"$schema": 5}), "The check failed."),
        (Expectation(json_schema=DEEPER), ""),
        (Expectation(json_schema={"properties": {"$ref": {"type": "string"}}}), ""),
    ],
)
def test_expectations_that_cannot_be_checked_are_known_before_an_answer(expect: Expectation, said: str) -> None:
    if not said:
        expect.require_valid()
        return
    with pytest.raises(VlmtuiError) as caught:
        expect.require_valid()
    assert said in f"{caught.value.message} {caught.value.detail}"


def test_a_fence_of_a_hundred_thousand_line_breaks_takes_no_time() -> None:
    """A regular expression took minutes."""
    assert not Expectation(json_schema={}).holds("```" + "\n" * 100_000)
