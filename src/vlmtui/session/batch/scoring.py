"""Compares an answer with what was expected."""

from __future__ import annotations

import json
import re

from vlmtui.errors import bad_input
from vlmtui.session.batch.item import Expectation


def check_expectation(expect: Expectation) -> None:
    """Raise VlmtuiError for a regular expression or a JSON Schema that is none."""
    if expect.regex is not None:
        try:
            re.compile(expect.regex)
        except (re.error, OverflowError, RecursionError) as error:
            raise bad_input("expect has an invalid regular expression.", detail=str(error)) from error
    if expect.json_schema is not None:
        from jsonschema import Draft202012Validator, SchemaError  # slow to import, and rarely needed

        try:
            Draft202012Validator.check_schema(expect.json_schema)
        except SchemaError as error:
            raise bad_input("expect has an invalid JSON Schema.", detail=error.message) from error


def is_expected(answer: str, expect: Expectation) -> bool:
    """Whether an answer is what was expected."""
    said = answer.strip()
    if expect.exact is not None and said != expect.exact.strip():
        return False
    if expect.contains is not None and expect.contains not in answer:
        return False
    if expect.regex is not None and re.search(expect.regex, answer) is None:
        return False
    return expect.json_schema is None or _satisfies(said, expect.json_schema)


def _satisfies(answer: str, schema: dict[str, object]) -> bool:
    from jsonschema import Draft202012Validator
    from referencing import Registry  # an empty one: a schema never makes us fetch another

    fenced = re.fullmatch(r"```(?:json)?\s*\n(.*)\n```", answer, re.DOTALL)
    try:
        value = json.loads(fenced[1] if fenced else answer)
    except (ValueError, RecursionError):
        return False
    return bool(Draft202012Validator(schema, registry=Registry()).is_valid(value))
