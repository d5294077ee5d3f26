"""Checks answers against regular expressions and JSON Schemas that others wrote, in a process of its own: either may
run for ever, and Python can't stop it.

`python -m vlmtui.session.answer_checks` reads questions from stdin, one line of JSON each: `["regex" or "schema", its
value, the answer]`, or null instead of an answer to check the expression or the schema itself. It writes a line of JSON
for each: `[whether the answer fits, or null if that can't be known, a sentence]`. A question that exceeds the limits
ends it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any, NoReturn

from vlmtui.processes import limit_process

MEMORY_BYTES = 1_000_000_000
CPU_S = 1
"""Processor time for one question, in seconds; the system counts to the next whole second."""
_SAME_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
"""Keywords whose schemas apply to the same value as the schema around them."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

Result = tuple[bool | None, str]


def main() -> None:
    for line in sys.stdin.buffer:
        limit_process(memory_bytes=MEMORY_BYTES, cpu_s=CPU_S)
        try:
            kind, wanted, answer = json.loads(line)
            result = _check_regex(wanted, answer) if kind == "regex" else _check_schema(wanted, answer)
        except RecursionError:
            result = (None, "The regex or schema is nested too deeply, or refers to itself without end.")
        except MemoryError:
            result = (None, f"The check needs more than {MEMORY_BYTES // 10**6} MB of memory.")
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


def _check_regex(expression: str, answer: str | None) -> Result:
    try:
        compiled = re.compile(expression)
    except (re.error, OverflowError) as error:
        return None, f"The regex can't be used: {error}."
    return answer is None or compiled.search(answer) is not None, ""


def _check_schema(schema: Any, answer: str | None) -> Result:
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    value: object = None
    if answer is not None:
        try:
            value = json.loads(answer, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            return False, f"The answer is not valid JSON: {error}."
    validator, fault = _validator(json.dumps(schema))
    if fault or answer is None:
        return (None, f"The schema can't be used: {fault}.") if fault else (True, "")
    try:
        problem = best_match(validator.iter_errors(value))
    except (Unresolvable, ArithmeticError, re.error) as error:
        return None, f"The schema can't be used: {next(iter(str(error).splitlines()), '')}."
    if problem is None:
        return True, "The answer fits its schema."
    place = "".join(f"[{one!r}]" for one in problem.absolute_path)
    where = f" at {place}" if place else ""
    return False, f"The answer does not fit its schema{where}: {problem.message[:1000]}."


@lru_cache(8)
def _validator(schema_json: str) -> tuple[Any, str]:
    """Return a validator that loads no other schema, and the reason if the schema can't be used."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry

    schema = json.loads(schema_json)
    draft = validator_for(schema, Draft202012Validator)
    try:
        draft.check_schema(schema)
    except SchemaError as error:
        return None, next(iter(str(error).splitlines()), "")
    return draft(schema, registry=Registry()), _fault(schema, draft) or ""


def _fault(schema: Any, draft: Any) -> str | None:
    """Return what is wrong with the references of a schema: one leads nowhere, to another document, or back to itself
    without going deeper into the value."""
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import specification_with

    specification = specification_with(draft.META_SCHEMA["$schema"])
    root = specification.create_resource(schema)
    waiting = [(root, Registry().resolver_with_root(root))]
    leads_to: dict[int, list[int]] = {}
    while waiting:
        resource, resolver = waiting.pop()
        contents = resource.contents
        if not isinstance(contents, dict) or id(contents) in leads_to:
            continue
        here = leads_to.setdefault(id(contents), [])
        for name in _REFERENCES:
            if isinstance(reference := contents.get(name), str):
                try:
                    found = resolver.lookup(reference)
                except Unresolvable:
                    return f"{name} leads nowhere: {reference[:100]}"
                here.append(id(found.contents))
                waiting.append((specification.create_resource(found.contents), found.resolver))
        here += [id(one) for name in _SAME_PLACE for one in _schemas(contents.get(name))]
        waiting += [(one, resolver.in_subresource(one)) for one in resource.subresources()]
    try:
        TopologicalSorter(leads_to).prepare()
    except CycleError:
        return "it refers to itself without end"
    return None


def _schemas(value: object) -> Iterator[object]:
    """Yield the value, and the values in it: a keyword has one schema, a list of them, or one by name."""
    yield value
    yield from value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


if __name__ == "__main__":
    main()
