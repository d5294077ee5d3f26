"""Checks a structured answer against the requested structure."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, NoReturn

import msgspec

from vlmtui.domain.sampling import Sampling
from vlmtui.session.dials import structured_of
from vlmtui.text import one_line

_CHECKED_WITHIN_S = 2.0
_MESSAGE_MAX = 200
"""Most characters of a message that quotes the answer."""
_EXPRESSIONS = "patternProperties"


class StructureCheck(msgspec.Struct, frozen=True):
    """The result of checking an answer's structure."""

    fits: bool | None
    """None: not checked."""
    message: str
    """One sentence, which may quote the answer. Hostile text."""


class _TooLongError(Exception):
    """A schema takes too long to check."""


def check_structure(sampling: Sampling, answer: str, *, within_s: float = _CHECKED_WITHIN_S) -> StructureCheck | None:
    """Check an answer's structure; None if none was requested. Blocks for up to `within_s` seconds. Regular expressions
    and grammars are not checked, since an expression may run for ever."""
    wanted = structured_of(sampling)
    if not wanted:
        return None
    if isinstance(choices := wanted.get("choice"), list):
        fits = answer in choices
        return StructureCheck(fits, "The answer is one of the choices." if fits else "The answer is no choice.")
    if "json" not in wanted and not wanted.get("json_object"):
        return StructureCheck(None, f"The answer was not checked against the {next(iter(wanted))}.")
    return check_json(answer, wanted.get("json", {"type": "object"}), within_s=within_s)


def check_json(answer: str, schema: object, *, within_s: float = _CHECKED_WITHIN_S) -> StructureCheck:
    """Check that an answer is JSON that fits a schema, with the limits of `check_structure`."""
    from jsonschema.exceptions import SchemaError, best_match
    from referencing.exceptions import Unresolvable

    try:
        value = json.loads(answer, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        return StructureCheck(False, _short(f"The answer is not valid JSON: {error}."))
    if _has_key(schema, _EXPRESSIONS):
        return StructureCheck(None, f"The answer is valid JSON; a schema with {_EXPRESSIONS} is not checked.")
    try:
        validator = _validator(schema, within_s)
        problem = best_match(validator.iter_errors(value))
    except _TooLongError:
        return StructureCheck(None, f"The answer could not be checked against its schema in {within_s:g} s.")
    except (SchemaError, Unresolvable, RecursionError, ArithmeticError) as error:
        return StructureCheck(None, _short(f"The schema can't be used: {next(iter(str(error).splitlines()), '')}."))
    if problem is None:
        unchecked = "; its patterns were not checked" if _has_key(schema, "pattern") else ""
        return StructureCheck(True, f"The answer fits its schema{unchecked}.")
    place = "".join(f"[{one!r}]" for one in problem.absolute_path)
    where = f" at {place}" if place else ""
    return StructureCheck(False, _short(f"The answer does not fit its schema{where}: {problem.message}."))


def _validator(schema: Any, within_s: float) -> Any:
    """Return a validator that loads no other schema, ignores regular expressions, and raises _TooLongError after
    `within_s` seconds. Raises SchemaError."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend, validator_for
    from referencing import Registry

    draft = validator_for(schema, Draft202012Validator)
    draft.check_schema(schema)
    until = time.monotonic() + within_s
    keywords = {name: _until(until, check) for name, check in draft.VALIDATORS.items() if name != "pattern"}
    return extend(draft, {**keywords, "pattern": lambda *_: ()})(schema, registry=Registry())


def _until(until: float, check: Callable[..., Any]) -> Callable[..., Any]:
    """Return a schema keyword's check that raises _TooLongError once `time.monotonic()` exceeds `until`."""

    @wraps(check)
    def checked(*arguments: Any) -> Iterator[Any]:
        if time.monotonic() > until:
            raise _TooLongError
        yield from check(*arguments) or ()

    return checked


def _has_key(schema: object, key: str) -> bool:
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if key in one:
                return True
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return False


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _short(message: str) -> str:
    message = one_line(message)
    return message if len(message) <= _MESSAGE_MAX else f"{message[: _MESSAGE_MAX - 1]}…"
