"""The variables of a chat template: those that it reads, and the check of values for them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeAlias

from vlmtui.errors import bad_input

TEMPLATE = "chat_template_kwargs"
"""The entry of `Sampling.extra` with the template's variables by name; vLLM's name for them."""
EFFORT = "reasoning_effort"
"""The variable of most templates for the effort of reasoning, and OpenAI's field of a request."""
Scalar: TypeAlias = bool | int | float | str
TemplateVariables: TypeAlias = Mapping[str, tuple[Scalar, ...]]
"""The variables that a template reads, each with the values that the template compares it with; no values: unknown."""

RENDERER_VARIABLES = frozenset(
    {
        "add_generation_prompt", "add_special_tokens", "chat_template", "continue_final_message", "conversation",
        "documents", "messages", "raise_exception", "raw", "raw_messages", "return_dict", "strftime_now",
        "tokenize", "tools",
    }
)  # fmt: skip
"""Names that the renderer sets, and the parameters of Transformers' `apply_chat_template`."""


def check_variables(given: Mapping[str, object], read: TemplateVariables | None) -> None:
    """Raise VlmtuiError(BAD_INPUT) for a variable that the template does not read, or whose value has another type than
    the values that the template compares it with.

    `read`: the variables that the template reads. None: unknown; then only names that the renderer sets itself are
    refused.
    """
    for name, value in given.items():
        if name in RENDERER_VARIABLES or name.endswith("_token"):
            raise bad_input(f"template.{name} is set by the renderer, not by you.")
        if read is None:
            continue
        if name not in read:
            raise bad_input(f"The chat template does not read {name}.", hint=_nearest(name, read))
        values = read[name]
        if values and not any(_same_type(value, one) for one in values):
            hint = f"The template compares it with {', '.join(map(value_text, values))}."
            raise bad_input(f"{name} can't be {value_text(value)[:60]}.", hint=hint)


def value_text(value: object) -> str:
    """Return a value as a user types it: a word as it is, anything else as JSON."""
    if isinstance(value, str) and value.isidentifier() and value not in ("true", "false", "null"):
        return value
    import json  # not needed for the first paint

    return json.dumps(value, ensure_ascii=False, default=str)


def variable_text(name: str, values: tuple[Scalar, ...]) -> str:
    """Return a variable with the values that the template compares it with: `enable_thinking: true, false`."""
    return f"{name}: {', '.join(map(value_text, values))}" if values else name


def _nearest(name: str, read: TemplateVariables) -> str:
    if not read:
        return "It reads no variables."
    close = difflib.get_close_matches(name, read, n=1)
    said = f"Did you mean {close[0]}? " if close else ""
    return f"{said}It reads {', '.join(sorted(read))}."


def _same_type(value: object, other: Scalar) -> bool:
    if isinstance(value, bool) or isinstance(other, bool):
        return type(value) is type(other)
    if isinstance(value, int | float):
        return isinstance(other, int | float)
    return type(value) is type(other)
