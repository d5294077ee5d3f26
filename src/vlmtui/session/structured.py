"""Checks a structured answer against what was asked for."""

from __future__ import annotations

import json
from functools import lru_cache

import msgspec

from vlmtui.domain.sampling import Sampling
from vlmtui.session.dials import structured_of


class StructureCheck(msgspec.Struct, frozen=True):
    """Whether an answer has the structure that was asked for."""

    fits: bool | None
    """None: it could not be checked."""
    message: str
    """One sentence; may quote the answer: hostile."""


def check_structure(sampling: Sampling, answer: str) -> StructureCheck | None:
    """Check an answer; None if nothing was asked of its structure. Expressions and grammars are not checked: an
    expression could run for ever."""
    wanted = structured_of(sampling)
    return _checked(msgspec.json.encode(wanted), answer) if wanted else None


@lru_cache(maxsize=64)
def _checked(encoded: bytes, answer: str) -> StructureCheck:
    """`encoded`: what is wanted, as JSON. Answers on screen are checked whenever they are laid out."""
    wanted = msgspec.json.decode(encoded)
    if isinstance(choices := wanted.get("choice"), list):
        fits = answer in choices
        return StructureCheck(fits, "The answer is one of the choices." if fits else "The answer is no choice.")
    if "json" not in wanted and not wanted.get("json_object"):
        return StructureCheck(None, f"The answer was not checked against the {next(iter(wanted))}.")
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError) as error:
        return StructureCheck(False, f"The answer is not valid JSON: {error}.")
    if "json" not in wanted:
        fits = isinstance(value, dict)
        return StructureCheck(fits, "The answer is a JSON object." if fits else "The answer is JSON, but no object.")
    return _against_schema(wanted["json"], value)


def _against_schema(schema: object, value: object) -> StructureCheck:
    try:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError, best_match
    except ImportError:
        return StructureCheck(
            None, "The answer is valid JSON; without the package jsonschema its schema can't be checked."
        )
    try:
        Draft202012Validator.check_schema(schema)
        problem = best_match(Draft202012Validator(schema).iter_errors(value))
    except (SchemaError, RecursionError) as error:
        return StructureCheck(None, f"The schema can't be used: {str(error).splitlines()[0]}.")
    if problem is None:
        return StructureCheck(True, "The answer fits its schema.")
    place = "".join(f"[{one!r}]" for one in problem.absolute_path)
    return StructureCheck(
        False, f"The answer does not fit its schema{f' at {place}' if place else ''}: {problem.message}."
    )
