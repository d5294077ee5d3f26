"""Parses engine arguments given as `NAME=VALUE`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.reading import parse_toml
from vlmtui.registry.match import Model


def with_engine_args(model: Model, given: Sequence[str]) -> Model:
    """Return the model with additional engine arguments. A value is TOML (`4096`, `true`, `{ fps = 1 }`), or else plain
    text. Raises VlmtuiError(BAD_USAGE) if there is no `=`."""
    if not given:
        return model
    typed = dict(_parsed(text) for text in given)
    spec = msgspec.structs.replace(
        model.spec,
        engine_args=model.spec.engine_args | typed,
        typed=tuple(sorted({*model.spec.typed, *typed})),
    )
    return msgspec.structs.replace(model, spec=spec)


def _parsed(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    if not equals or not name.isidentifier():
        message = f"{text!r} is not an engine argument."
        raise VlmtuiError(ErrorKind.BAD_USAGE, message, hint="Write NAME=VALUE, for example max_model_len=4096.")
    try:
        return name, parse_toml(f"value = {value}".encode(errors="replace"))["value"]
    except ValueError:
        return name, value.strip()
