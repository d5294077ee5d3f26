"""Dials: the parameters of an answer that are not plain numbers, such as stop strings, token biases, structured output
and arguments of the model's processor. `/set`, the command line and fan-outs read this table; it imports nothing heavy.

Their values are in `Sampling`: `stop`, `stop_token_ids` and `skip_special_tokens` are fields of it; all others are in
`Sampling.extra` under vLLM's names. Of these, `thinking`, `effort` and `template.NAME` set variables of the chat
template.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from enum import Enum, auto
from typing import Literal, NamedTuple, NoReturn

from vlmtui.domain.template import TEMPLATE
from vlmtui.errors import bad_input

PROCESSOR = "mm_processor_kwargs"
STRUCTURED = "structured_outputs"
ArgumentKind = Literal["bool", "int", "float", "object"]
"""The type of a processor argument's value."""
_KINDS: dict[ArgumentKind, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "object": ((dict,), "a JSON object"),
}
"""For each kind, the accepted Python types and the words for them in errors."""
_PREFIX = "processor."
_TEMPLATE_PREFIX = "template."
THINKING_BUDGET = "thinking_token_budget"
"""vLLM's name for the most tokens of reasoning."""
_LONGEST = 100_000
"""Maximum length of a value, in characters."""
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class DialKind(Enum):
    """The syntax of a dial's value."""

    FLAG = auto()
    COUNT = auto()
    """A whole number, 0 or more."""
    TEXTS = auto()
    """One text, or a JSON list of texts."""
    TOKENS = auto()
    """Token ids: `1,2`, or a JSON list."""
    BIASES = auto()
    """`ID:BIAS,…`, or a JSON object."""
    CHOICES = auto()
    """`one|another`, or a JSON list of texts."""
    SCHEMA = auto()
    """A JSON object."""
    TEXT = auto()


class Dial(NamedTuple):
    """A parameter of an answer: its name, its syntax and its help text."""

    name: str
    kind: DialKind
    help: str
    """The meaning and syntax of its values, for help texts and errors."""


DIALS = {
    dial.name: dial
    for dial in (
        Dial("thinking", DialKind.FLAG, "reasoning before the answer: on or off"),
        Dial("effort", DialKind.TEXT, "the effort of reasoning: none, low, medium, high or max"),
        Dial("thinking_budget", DialKind.COUNT, "the most tokens of reasoning"),
        Dial("stop", DialKind.TEXTS, "a string that ends the answer, or a JSON list of them"),
        Dial("stop_token_ids", DialKind.TOKENS, "ids of tokens that end the answer: 1,2"),
        Dial("bad_words", DialKind.TEXTS, "a text that is never written, or a JSON list of them"),
        Dial("logit_bias", DialKind.BIASES, "ID:BIAS,… from -100 to 100"),
        Dial("allowed_token_ids", DialKind.TOKENS, "the only tokens of the answer: 1,2"),
        Dial("min_tokens", DialKind.COUNT, "at least N tokens"),
        Dial("ignore_eos", DialKind.FLAG, "ignore the model's own end token"),
        Dial("skip_special_tokens", DialKind.FLAG, "leave special tokens out of the answer"),
        Dial("include_stop_str_in_output", DialKind.FLAG, "keep the stop string in the answer"),
        Dial("json", DialKind.SCHEMA, "an answer that fits this JSON schema, or @FILE"),
        Dial("regex", DialKind.TEXT, "an answer that matches this expression"),
        Dial("choice", DialKind.CHOICES, "one of these answers: yes|no"),
        Dial("grammar", DialKind.TEXT, "an answer of this grammar (EBNF), or @FILE"),
        Dial("json_object", DialKind.FLAG, "an answer that is a JSON object"),
    )
}
"""The dials by name. The names are vLLM's; `json` to `json_object` are those of its structured outputs."""
PROMPT_DIALS = ("thinking", "effort")
"""The dials that change the prompt: they set variables of the chat template."""
ARGUMENTS = frozenset(
    {
        "crop_to_patches", "do_pan_and_scan", "dynamic_hd", "dynamic_image_size", "fps", "max_dynamic_patch",
        "max_image_tokens", "max_patches", "max_pixels", "max_soft_tokens", "max_tiles", "min_dynamic_patch",
        "min_image_tokens", "min_patches", "min_pixels", "min_tiles", "num_crops", "pan_and_scan_max_num_crops",
        "pan_and_scan_min_crop_size", "pan_and_scan_min_ratio_to_activate", "size",
    }
)  # fmt: skip
"""Names of processor arguments in the bundled family records. A fan-out is parsed before its model is known."""
FROM_FILES = ("json", "grammar")
"""The dials whose value may be `@FILE`."""
_EXTRA_FIELDS = frozenset(
    {
        "allowed_token_ids", "bad_words", "extra_args", "ignore_eos", "include_stop_str_in_output", "logit_bias",
        "logprobs", "min_tokens", PROCESSOR, STRUCTURED, TEMPLATE, THINKING_BUDGET,
    }
)  # fmt: skip
"""Names in `Sampling.extra` that dials and bundled family records set."""
_RISKY_WORDS = frozenset(
    {
        "class", "cls", "code", "dir", "file", "folder", "map", "module", "path", "plugin", "transfer", "trust", "uri",
        "url",
    }
)  # fmt: skip
"""Words in the names of arguments that can name code, a file or an address: `auto_map`, `tokenizer_class`."""
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ -]*")
STRUCTURED_DIALS = ("json", "regex", "choice", "grammar", "json_object")


def is_plain(value: object) -> bool:
    """Return True if a value is harmless: a number, a bool, None, a single word, or a list or dict of these.

    The keys of a dict must not name code or a file.
    """
    match value:
        case None | bool() | int() | float():
            return True
        case str():
            return not value or _WORD.fullmatch(value) is not None
        case list() | tuple():
            return all(map(is_plain, value))
        case dict():
            return all(
                _RISKY_WORDS.isdisjoint(str(key).lower().split("_")) and is_plain(inner) for key, inner in value.items()
            )
    return False


def no_dials(extra: Mapping[str, object]) -> list[str]:
    """Return the names in `extra` (`Sampling.extra` of another person's document) that must be ignored for safety:
    those that no dial sets, and those whose values could name code or a file."""
    tables = {PROCESSOR, TEMPLATE, "extra_args"}
    return [
        name for name, value in extra.items() if name not in _EXTRA_FIELDS or (name in tables and not is_plain(value))
    ]


def dial_name(name: str, arguments: Container[str]) -> str | None:
    """Return the canonical name of a dial, `processor.NAME` for a processor argument, or `template.NAME` for a variable
    of the chat template; None for any other name. `arguments`: names of the family's processor arguments."""
    plain = name.strip().replace("-", "_")
    if plain in DIALS:
        return plain
    if plain in arguments:
        return f"{_PREFIX}{plain}"
    prefix, dot, rest = plain.partition(".")
    return plain if prefix + dot in (_PREFIX, _TEMPLATE_PREFIX) and rest.isidentifier() else None


def processor_argument(name: str) -> str | None:
    """Return NAME of `processor.NAME`, a name that `dial_name` returned; None for any other name."""
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else None


def template_variable(name: str) -> str | None:
    """Return NAME of `template.NAME`, a name that `dial_name` returned; None for any other name."""
    return name.removeprefix(_TEMPLATE_PREFIX) if name.startswith(_TEMPLATE_PREFIX) else None


def read_dial(name: str, text: str, arguments: Mapping[str, ArgumentKind]) -> object:
    """Parse the text of a value. Raises VlmtuiError(BAD_INPUT).

    `name` comes from `dial_name`. `arguments`: the types of the family's processor arguments, by name.
    """
    if len(text) > _LONGEST:
        raise bad_input(f"The value of {name} is longer than {_LONGEST:,} characters.")
    argument = processor_argument(name)
    if argument is not None:
        return _argument(argument, text, arguments.get(argument))
    if template_variable(name) is not None:
        return _argument(name, text, None)
    kind, said = DIALS[name].kind, text.strip()
    match kind:
        case DialKind.FLAG:
            return _flag(name, said)
        case DialKind.COUNT if said.isascii() and said.isdecimal() and len(said) < 10:
            return int(said)
        case DialKind.TEXT if text:
            return text
        case DialKind.TEXTS | DialKind.CHOICES:
            return _texts(name, text, separator="|" if kind is DialKind.CHOICES else "")
        case DialKind.TOKENS:
            found = _json(said) if said.startswith("[") else [_number(one) for one in said.split(",")]
            if isinstance(found, list) and found and all(type(one) is int and one >= 0 for one in found):
                return found
        case DialKind.BIASES:
            if (biases := _biases(said)) is not None:
                return biases
        case DialKind.SCHEMA:
            schema = _json(said)
            if isinstance(schema, dict):
                return schema
    raise bad_input(f"{name} can't be {text[:60]!r}.", hint=f"It takes {DIALS[name].help}.")


def dial_text(dial: str, value: object) -> str:
    """Return a value as a user would type it. `dial` comes from `dial_name`. Raises VlmtuiError(BAD_INPUT) for a value
    that can't be typed, such as a date."""
    import json

    if isinstance(value, str) and processor_argument(dial) is None:
        is_plain_text = template_variable(dial) is None or _json(value) is None
        return value if is_plain_text else json.dumps(value)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise bad_input(f"{dial} can't be {str(value)[:60]}.") from error


def default_parameters(given: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield names and values of the table `[parameters]` of `config.toml`. In its tables `processor` and `template`,
    NAME becomes `processor.NAME` and `template.NAME`."""
    for name, value in given.items():
        if f"{name}." in (_PREFIX, _TEMPLATE_PREFIX) and isinstance(value, dict):
            yield from ((f"{name}.{argument}", one) for argument, one in value.items())
        else:
            yield name, value


def check_default(name: str, value: object) -> None:
    """Raise VlmtuiError(BAD_INPUT) if a parameter of `config.toml` does not exist, or if its value is invalid."""
    dial = dial_name(name, ARGUMENTS)
    if dial is None:
        known = ", ".join((*DIALS, *sorted(ARGUMENTS)))
        raise bad_input(
            f"There is no parameter {name}.", hint=f"Names: {known}; processor.NAME, template.NAME for others."
        )
    text = dial_text(dial, value)
    if not (dial in FROM_FILES and text.startswith("@")):
        read_dial(dial, text, {})


def _argument(name: str, text: str, kind: ArgumentKind | None) -> object:
    """Parse the value of a processor argument or a template variable. `kind`: the type that it must have; None: any
    type."""
    found = _json(text.strip())
    value = text if found is None and text.strip() != "null" else found
    if kind is None:
        return value
    types, words = _KINDS[kind]
    if not isinstance(value, types) or isinstance(value, bool) != (kind == "bool"):
        raise bad_input(f"{name} must be {words}, not {text[:60]!r}.")
    return value


def _flag(name: str, said: str) -> bool:
    if said.lower() in (*_TRUE, *_FALSE):
        return said.lower() in _TRUE
    raise bad_input(f"{name} is on or off, not {said[:60]!r}.")


def _texts(name: str, text: str, *, separator: str) -> list[str]:
    found = _json(text.strip()) if text.strip().startswith("[") else None
    if found is None:
        found = [one.strip() for one in text.split(separator)] if separator else [text]
    if isinstance(found, list) and found and all(isinstance(one, str) and one for one in found):
        return [str(one) for one in found]
    raise bad_input(f"{name} takes texts that are not empty.", hint=f"It takes {DIALS[name].help}.")


def _biases(said: str) -> dict[str, float] | None:
    """Parse token biases; None if they are invalid. The result's keys are token ids as strings, as in JSON."""
    given: object = _json(said)
    if not isinstance(given, dict):
        given = {key.strip(): _number(value) for key, _, value in (one.partition(":") for one in said.split(","))}
    found: dict[str, float] = {}
    for key, value in given.items():
        is_token = str(key).isascii() and str(key).isdecimal()
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        if not is_token or not -100 <= value <= 100:
            return None
        found[str(key)] = float(value)
    return found or None


def _number(text: str) -> int | float | None:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return None


def _json(text: str) -> object:
    """Return the value of a JSON text; None for invalid JSON."""
    import json

    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")
