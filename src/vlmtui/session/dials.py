"""Sets the parameters of an answer by name: sampling parameters, and dials (`vlmtui.domain.dials`), such as stop
strings, structured output and the processor's arguments."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from vlmtui.domain.dials import (
    DIALS,
    FROM_FILES,
    PROCESSOR,
    STRUCTURED,
    STRUCTURED_DIALS,
    THINKING_BUDGET,
    ArgumentKind,
    DialKind,
    default_parameters,
    dial_name,
    dial_text,
    processor_argument,
    read_dial,
    template_variable,
)
from vlmtui.domain.sampling import PARAMETERS, Sampling, find_parameter
from vlmtui.domain.template import TEMPLATE, TemplateVariables, check_variables, value_text, variable_text
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.reading import read_whole
from vlmtui.registry.schema import UNKNOWN_THINKING, Family, Thinking

_DEFAULT = "default"
_FILE_BYTES_MAX = 1_000_000
_FIELDS: dict[str, object] = {"stop": (), "stop_token_ids": (), "skip_special_tokens": True}
"""The dials that are fields of `Sampling`, with their values if they are not set."""
_UNSET = object()
_OF_FAMILY = (PROCESSOR, TEMPLATE)
_REASONING = ("thinking", "effort", "thinking_budget")


UNCHECKED = "This engine does not tell its chat template: the variable is sent, but nobody checked that it is read."


def with_setting(
    sampling: Sampling, text: str, family: Family | None = None, variables: TemplateVariables | None = None
) -> Sampling:
    """Return the sampling with `NAME VALUE` or `NAME=VALUE` applied. `variables`: the variables that the chat template
    reads; None: unknown. Raises VlmtuiError as `with_parameter` and `check_variables` do."""
    match = re.fullmatch(r"([\w.-]+)\s*[=\s]\s*(.+)", text.strip(), re.DOTALL)
    if match is None:
        raise bad_input("/set takes a name and a value.", hint=f"Names: {_names(family)}; `default` unsets one.")
    changed = with_parameter(sampling, family, match[1], match[2])
    if variables_of(changed) != variables_of(sampling):
        check_variables(variables_of(changed), variables)
    return changed


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
        hint = f"Names: {_names(family)}; processor.NAME, template.NAME."
        raise bad_input(f"{lacks} no parameter {name}.", hint=hint)
    if text.strip() == _DEFAULT:
        return _with_value(sampling, _as_variable(dial, family), _UNSET)
    if names_file(dial, text):
        text = _file_text(Path(text[1:]))
    value = read_dial(dial, text, arguments)
    _check_value(dial, value, family)
    if dial == "thinking":
        thinking = _thinking(family)
        value = thinking.on if value else thinking.off
    return _with_value(sampling, _as_variable(dial, family), value)


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
        if dial is None or (dial in _REASONING and not (family is not None and _reasons(family, dial))):
            continue
        if _listed_name(_as_variable(dial, family)) in given:
            continue
        sampling = with_parameter(sampling, family, name, dial_text(dial, value))
    return sampling


def with_family_defaults(sampling: Sampling, family: Family, defaults: Mapping[str, object]) -> Sampling:
    """Return the sampling with only those defaults added that concern the family's processor and chat template. Values
    already set stay."""
    wanted = {name: value for name, value in defaults.items() if name in _REASONING or name not in DIALS}
    return with_default_parameters(sampling, family, wanted)


def processor_arguments(sampling: Sampling, engine_args: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments for the model's processor: the engine's, overridden by the sampling's."""
    own = engine_args.get(PROCESSOR)
    return {**(own if isinstance(own, dict) else {}), **_table(sampling, PROCESSOR)}


def with_arguments(sampling: Sampling, arguments: Mapping[str, object]) -> Sampling:
    """Return the sampling with these arguments for the processor added."""
    return _with_entries(sampling, PROCESSOR, arguments)


def of_family(sampling: Sampling) -> dict[str, object]:
    """Return the entries of `Sampling.extra` whose meaning depends on the model's family."""
    return {name: value for name, value in sampling.extra.items() if name in _OF_FAMILY}


def with_family(sampling: Sampling, entries: Mapping[str, object]) -> Sampling:
    """Return the sampling with these entries of `Sampling.extra` in place of those that `of_family` returns."""
    others = {name: value for name, value in sampling.extra.items() if name not in _OF_FAMILY}
    return msgspec.structs.replace(sampling, extra={**others, **entries})


def variables_of(sampling: Sampling) -> dict[str, object]:
    """Return the variables for the chat template, by name."""
    return _table(sampling, TEMPLATE)


def with_variables(sampling: Sampling, variables: Mapping[str, object]) -> Sampling:
    """Return the sampling with these variables for the chat template added."""
    return _with_entries(sampling, TEMPLATE, variables)


def named_variables(family: Family | None) -> set[str]:
    """Return the names of the template variables that `thinking` and `effort` set in this family."""
    thinking = _thinking(family)
    return {name for name in (thinking.switch, thinking.effort) if name}


def described_variables(family: Family | None, read: TemplateVariables) -> list[str]:
    """Return a line for each variable that a chat template reads: its values, and the parameter that sets it. Those
    that the dials of reasoning set come first."""
    thinking = _thinking(family)
    dials = {thinking.effort: "effort", thinking.switch: "thinking"}
    names = sorted(read, key=lambda name: (name not in dials, name))
    return [f"{variable_text(name, read[name])} (set by {dials.get(name, f'template.{name}')})" for name in names]


class ParameterHelp(NamedTuple):
    """What a parameter is for, and its values, if they are few and known."""

    help: str
    values: tuple[str, ...] = ()


def parameter_help(family: Family, read: TemplateVariables) -> dict[str, ParameterHelp]:
    """Return the parameters that can be set for a model of the family, by name. `read`: the variables of its chat
    template."""
    thinking = _thinking(family)
    variables = {"thinking": thinking.switch, "effort": thinking.effort}
    values = {"effort": tuple(map(value_text, read.get(thinking.effort, ())))}
    values |= {name: ("on", "off") for name, dial in DIALS.items() if dial.kind is DialKind.FLAG}
    found = {name: ParameterHelp(one.help) for name, one in PARAMETERS.items()}
    found |= {
        name: ParameterHelp(one.help, values.get(name, ()))
        for name, one in DIALS.items()
        if name not in variables or variables[name] in read
    }
    found |= {name: ParameterHelp("an argument of the image processor") for name in family.processor}
    found |= {
        f"template.{name}": ParameterHelp("a variable of the chat template", tuple(map(value_text, known)))
        for name, known in read.items()
    }
    return found


def described_extra(sampling: Sampling) -> dict[str, object]:
    """Return the parameters that are set in addition to the plain sampling parameters, by the names that users set."""
    found = {name: value for name, unset in _FIELDS.items() if (value := getattr(sampling, name)) != unset}
    for name, value in sampling.extra.items():
        if name in (PROCESSOR, STRUCTURED) and isinstance(value, dict):
            found |= value
        elif name == TEMPLATE and isinstance(value, dict):
            found |= {f"template.{variable}": one for variable, one in value.items()}
        elif name in DIALS:
            found[name] = value
        elif name == THINKING_BUDGET:
            found["thinking_budget"] = value
    return found


def typed_parameters(sampling: Sampling, family: Family | None) -> dict[str, str]:
    """Return all dials and arguments of the family's processor by name, as a user would type them; empty: not set."""
    given = described_extra(sampling)
    thinking = _thinking(family)
    for name in _REASONING:
        value = given.pop(_as_variable(name, family), None) if _has_variable(name, thinking) else None
        if name == "thinking" and value in (thinking.on, thinking.off):
            value = "on" if value == thinking.on else "off"
        if value is not None:
            given[name] = value
    arguments = (*_kinds(family), *_table(sampling, PROCESSOR))
    variables = [name for name in given if template_variable(name) is not None]
    return {
        name: _typed(name, given[name], arguments) if name in given else ""
        for name in dict.fromkeys((*DIALS, *arguments, *variables))
    }


def _check_value(dial: str, value: object, family: Family | None) -> None:
    """Raise VlmtuiError if a processor argument takes only some numbers, and this is none of them."""
    known = family.processor.get(processor_argument(dial) or "") if family is not None else None
    if known is not None and known.values and value not in known.values:
        raise bad_input(f"{processor_argument(dial)} must be {known.range}, not {value}.")


def _reasons(family: Family, dial: str) -> bool:
    """Return True if the family's record has `[thinking]`, and the dial (`thinking`, `effort` or `thinking_budget`)
    works with it."""
    return family.thinking is not None and _has_variable(dial, family.thinking)


def _thinking(family: Family | None) -> Thinking:
    return (family.thinking if family is not None else None) or UNKNOWN_THINKING


def _has_variable(dial: str, thinking: Thinking) -> bool:
    """Return True if the record names the template variable that the dial `thinking` or `effort` sets; True for other
    dials."""
    return bool({"thinking": thinking.switch, "effort": thinking.effort}.get(dial, True))


def _as_variable(dial: str, family: Family | None) -> str:
    """Return the dial `template.NAME` for `thinking` and `effort`, where NAME is the variable of the family's chat
    template; other dials unchanged. Raises VlmtuiError(UNSUPPORTED) if the template has no variable for it."""
    thinking = _thinking(family)
    if not _has_variable(dial, thinking):
        what = "its reasoning can't be switched" if dial == "thinking" else "its reasoning has no levels of effort"
        title = family.title if family is not None else "This model"
        hint = "template.NAME sets any variable of the chat template."
        raise VlmtuiError(ErrorKind.UNSUPPORTED, f"{title}: {what}.", hint=hint)
    names = {"thinking": thinking.switch, "effort": thinking.effort}
    return f"template.{name}" if (name := names.get(dial)) else dial


def _listed_name(dial: str) -> str:
    """Return the name under which `described_extra` lists a dial."""
    return processor_argument(dial) or dial


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
    """Return the sampling with a dial set; `_UNSET` unsets it."""
    if dial in _FIELDS:
        new = _FIELDS[dial] if value is _UNSET else tuple(value) if isinstance(value, list) else value
        return msgspec.structs.replace(sampling, **{dial: new})
    if (entry := _entry(dial)) is not None:
        table, name = entry
        entries = {key: one for key, one in _table(sampling, table).items() if key != name}
        return _with_extra(sampling, table, entries if value is _UNSET else {**entries, name: value})
    if dial in STRUCTURED_DIALS:
        return _with_extra(sampling, STRUCTURED, {} if value is _UNSET or value is False else {dial: value})
    name = THINKING_BUDGET if dial == "thinking_budget" else dial
    return _with_extra(sampling, name, {} if value is _UNSET else value)


def _entry(dial: str) -> tuple[str, str] | None:
    """Return where a dial is in `Sampling.extra`: the name of a table, and the name in that table. None if the dial is
    in no table."""
    if (argument := processor_argument(dial)) is not None:
        return PROCESSOR, argument
    variable = template_variable(dial)
    return None if variable is None else (TEMPLATE, variable)


def _with_extra(sampling: Sampling, name: str, value: object) -> Sampling:
    """Return the sampling with this entry of `Sampling.extra`; the value `{}` removes the entry."""
    extra = {key: one for key, one in sampling.extra.items() if key != name}
    if value != {}:
        extra[name] = value
    return msgspec.structs.replace(sampling, extra=extra)


def _with_entries(sampling: Sampling, table: str, entries: Mapping[str, object]) -> Sampling:
    return _with_extra(sampling, table, {**_table(sampling, table), **entries}) if entries else sampling


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
