"""Sets parameters of an answer by name: of sampling, further ones of vLLM (dials), and the processor's arguments."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from pathlib import Path

import msgspec

from vlmtui.domain.dials import (
    DIALS,
    FROM_FILES,
    PROCESSOR,
    STRUCTURED,
    STRUCTURED_DIALS,
    ArgumentKind,
    default_parameters,
    dial_name,
    dial_text,
    processor_argument,
    read_dial,
)
from vlmtui.domain.sampling import PARAMETERS, Sampling, find_parameter
from vlmtui.errors import bad_input
from vlmtui.reading import read_whole
from vlmtui.registry.schema import Family

_DEFAULT = "default"
_FILE_BYTES_MAX = 1_000_000
_FIELDS = ("stop", "stop_token_ids")


def with_setting(sampling: Sampling, text: str, family: Family | None = None) -> Sampling:
    """Return the sampling with `NAME VALUE` or `NAME=VALUE` applied. Raises VlmtuiError as `with_parameter` does."""
    match = re.fullmatch(r"([\w.-]+)\s*[=\s]\s*(.+)", text.strip(), re.DOTALL)
    if match is None:
        raise bad_input("/set takes a name and a value.", hint=f"Names: {_names(family)}; `default` unsets one.")
    return with_parameter(sampling, family, match[1], match[2])


def names_file(name: str, text: str) -> bool:
    """Return True if a parameter's value is to be read from a file: `json=@schema.json`."""
    return name in FROM_FILES and text.startswith("@")


def with_parameter(sampling: Sampling, family: Family | None, name: str, text: str) -> Sampling:
    """Return the sampling with one parameter set; the value `default` unsets it, `@FILE` reads a schema or grammar from
    a file. Blocking. Raises VlmtuiError for an unknown name or an invalid value."""
    parameter = find_parameter(name)
    if parameter is not None:
        number = None if text.strip() == _DEFAULT else parameter.read(text)
        if number is not None and (problem := parameter.problem(number)):
            raise bad_input(f"{problem}.")
        return msgspec.structs.replace(sampling, **{parameter.name: number})
    arguments = _kinds(family)
    dial = dial_name(name, arguments)
    if dial is None:
        lacks = f"{family.title} has" if family is not None else "There is"
        hint = f"Names: {_names(family)}; processor.NAME passes any argument to the processor."
        raise bad_input(f"{lacks} no parameter {name}.", hint=hint)
    if text.strip() == _DEFAULT:
        return _unset(sampling, dial)
    if names_file(dial, text):
        text = _file_text(Path(text[1:]))
    return _with_value(sampling, dial, read_dial(dial, text, arguments))


def with_parameters(sampling: Sampling, family: Family | None, given: list[str]) -> Sampling:
    """Return the sampling with parameters of the form `NAME=VALUE` set, in order. Blocking. Raises VlmtuiError."""
    for one in given:
        name, equals, text = one.partition("=")
        if not equals or not name:
            raise bad_input(f"{one!r} is not NAME=VALUE.")
        sampling = with_parameter(sampling, family, name, text)
    return sampling


def with_default_parameters(sampling: Sampling, family: Family | None, defaults: Mapping[str, object]) -> Sampling:
    """Return the sampling with the settings file's defaults added. Raises VlmtuiError for an invalid value."""
    given = described_extra(sampling)
    for name, value in default_parameters(defaults):
        dial = dial_name(name, _kinds(family))
        if dial is None or (processor_argument(dial) or dial) in given:
            continue
        sampling = with_parameter(sampling, family, name, dial_text(dial, value))
    return sampling


def processor_arguments(sampling: Sampling, engine_args: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments for the model's processor: those of the engine, overridden by those of the sampling."""
    own = engine_args.get(PROCESSOR)
    return {**(own if isinstance(own, dict) else {}), **_table(sampling, PROCESSOR)}


def with_arguments(sampling: Sampling, arguments: Mapping[str, object]) -> Sampling:
    """Return the sampling with these arguments for the processor added."""
    return _with_extra(sampling, PROCESSOR, {**_table(sampling, PROCESSOR), **arguments}) if arguments else sampling


def without_arguments(sampling: Sampling) -> Sampling:
    """Return the sampling without arguments for the processor."""
    return _with_extra(sampling, PROCESSOR, {})


def described_extra(sampling: Sampling) -> dict[str, object]:
    """Return the parameters that are set in addition to the plain sampling parameters, by the names that users set."""
    found: dict[str, object] = {name: value for name in _FIELDS if (value := getattr(sampling, name))}
    if not sampling.skip_special_tokens:
        found["skip_special_tokens"] = False
    for name, value in sampling.extra.items():
        if name in (PROCESSOR, STRUCTURED) and isinstance(value, dict):
            found |= value
        elif name in DIALS:
            found[name] = value
    return found


def typed_parameters(sampling: Sampling, family: Family | None) -> dict[str, str]:
    """Return all dials and arguments of the family's processor by name, as a user would type them; empty: not set."""
    given = described_extra(sampling)
    arguments = (*_kinds(family), *_table(sampling, PROCESSOR))
    return {
        name: _typed(name, given[name], arguments) if name in given else ""
        for name in dict.fromkeys((*DIALS, *arguments))
    }


def _kinds(family: Family | None) -> dict[str, ArgumentKind]:
    return {name: argument.kind for name, argument in family.processor.items()} if family is not None else {}


def _typed(name: str, value: object, arguments: Container[str]) -> str:
    if isinstance(value, list | tuple) and len(value) == 1 and name in ("stop", "bad_words"):
        only = str(value[0])
        return only if not only.lstrip().startswith("[") else dial_text(name, list(value))
    return dial_text(dial_name(name, arguments) or name, list(value) if isinstance(value, tuple) else value)


def structured_of(sampling: Sampling) -> Mapping[str, object]:
    """Return the requested structure by vLLM's names (`json`, `choice` …); empty: none."""
    found = sampling.extra.get(STRUCTURED)
    return {str(name): value for name, value in found.items()} if isinstance(found, dict) else {}


def _with_value(sampling: Sampling, dial: str, value: object) -> Sampling:
    argument = processor_argument(dial)
    if argument is not None:
        return _with_extra(sampling, PROCESSOR, {**_table(sampling, PROCESSOR), argument: value})
    if dial in _FIELDS and isinstance(value, list):
        return msgspec.structs.replace(sampling, **{dial: tuple(value)})
    if dial == "skip_special_tokens":
        return msgspec.structs.replace(sampling, skip_special_tokens=bool(value))
    if dial in STRUCTURED_DIALS:
        return _with_extra(sampling, STRUCTURED, {dial: value} if value is not False else {})
    return _with_extra(sampling, dial, value)


def _unset(sampling: Sampling, dial: str) -> Sampling:
    argument = processor_argument(dial)
    if argument is not None:
        rest = {name: value for name, value in _table(sampling, PROCESSOR).items() if name != argument}
        return _with_extra(sampling, PROCESSOR, rest)
    if dial in _FIELDS:
        return msgspec.structs.replace(sampling, **{dial: ()})
    if dial == "skip_special_tokens":
        return msgspec.structs.replace(sampling, skip_special_tokens=True)
    return _with_extra(sampling, STRUCTURED if dial in STRUCTURED_DIALS else dial, {})


def _with_extra(sampling: Sampling, name: str, value: object) -> Sampling:
    """Set an entry of `Sampling.extra`; `{}` removes it."""
    extra = {key: one for key, one in sampling.extra.items() if key != name}
    if value != {}:
        extra[name] = value
    return msgspec.structs.replace(sampling, extra=extra)


def _table(sampling: Sampling, name: str) -> dict[str, object]:
    found = sampling.extra.get(name)
    return dict(found) if isinstance(found, dict) else {}


def _file_text(path: Path) -> str:
    try:
        return read_whole(path, bytes_max=_FILE_BYTES_MAX).decode()
    except UnicodeDecodeError as error:
        raise bad_input(f"{path.name} is not UTF-8 text.") from error


def _names(family: Family | None) -> str:
    return ", ".join((*PARAMETERS, *DIALS, *_kinds(family)))
