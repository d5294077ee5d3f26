"""Check the processor arguments of a request, as a processor ignores unknown ones, and some kill the engine; and give
them the names that Transformers has for them."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from vlmtui.domain.dials import ARGUMENTS
from vlmtui.errors import bad_input
from vlmtui.registry.size_limits import wrong_sizes
from vlmtui.text import one_line

FIXED = frozenset(
    {
        "data_format", "input_data_format", "max_slice_nums", "merge_size", "patch_size", "return_tensors",
        "temporal_patch_size",
    }
)  # fmt: skip
"""Arguments that a request must not set, because the weights or the engine depend on their value. For example, vLLM
0.32 counts the placeholders of MiniCPM-V's slices without a request's `max_slice_nums`, and dies of the mismatch."""
_PARTS = ("image_processor", "video_processor", "feature_extractor", "audio_processor")
_EDGES = {"min_pixels": "shortest_edge", "max_pixels": "longest_edge"}
"""The limits of an image's pixels under their former names, and as edges of `size`."""
_SIZED = {"image_processor": "images_kwargs", "video_processor": "videos_kwargs"}
"""The parts of a processor that have a `size`, and the names of their own arguments in a call."""
_NAMED = 12
"""The most names in a hint."""
_METHODS = ("__init__", "__call__", "preprocess")
_SCOPES = ("images_kwargs", "videos_kwargs", "audio_kwargs", "text_kwargs")
_NO_ARGUMENTS = frozenset({"self", "text", "images", "videos", "audio", "audios", "kwargs", "args"}) | FIXED


def check_arguments(processor: Any, given: Mapping[str, object]) -> None:
    """Raise VlmtuiError(BAD_INPUT) for an argument in FIXED, for a size that would take all memory, and for an argument
    that is neither in `ARGUMENTS` nor in a signature of the processor. If the processor accepts any argument, as some
    remote code does, the names are not checked."""
    for name in given:
        if name in FIXED:
            raise bad_input(
                f"The processor's {name} can't be set for a request.",
                hint="The weights or the engine need their own value; mm_processor_kwargs may set it at a load.",
            )
    if wrong := next(wrong_sizes(given), ""):
        raise bad_input(f"A processor argument is out of range: {one_line(wrong)}.")
    known = known_arguments(processor)
    for name in given if known is not None else ():
        if known is not None and name not in known and name not in ARGUMENTS:
            near = difflib.get_close_matches(name, known, 3)
            hint = f"Similar names: {', '.join(near)}." if near else f"Names: {_some(known)}."
            raise bad_input(f"{type(processor).__name__} has no argument {one_line(name)}.", hint=hint)


def merged_arguments(processor: Any, loaded: Mapping[str, object], asked: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments for a call of the processor: those of the load, overridden by those of the request.

    `min_pixels` and `max_pixels` become the edges of `size`, which Transformers 5.23 takes instead of them: for images
    and for videos each, over the processor's own `size`. They stay if the `size` of the processor has no such edges.
    Not for vLLM 0.32, which adds the missing one of both names to what it gets, and hands both to the processor.
    """
    merged = {**loaded, **asked}
    parts = {scope: getattr(processor, part, None) for part, scope in _SIZED.items()}
    sizes = {scope: _edges(part) for scope, part in parts.items() if part is not None}
    if _EDGES.keys().isdisjoint(merged) or not sizes or not all(sizes.values()):
        return merged
    limits: dict[str, object] = {}
    for given in (loaded, asked):
        size = given.get("size")
        limits |= size if isinstance(size, Mapping) else {}
        limits |= {edge: given[name] for name, edge in _EDGES.items() if given.get(name) is not None}
    found = {name: value for name, value in merged.items() if name not in (*_EDGES, "size")}
    for scope, own in sizes.items():
        scoped = merged.get(scope)
        found[scope] = {"size": {**own, **limits}, **(scoped if isinstance(scoped, Mapping) else {})}
    return found


def _edges(part: Any) -> dict[str, int]:
    """Return a part's own `size` if it has the two edges that limit the number of pixels; otherwise nothing."""
    size = getattr(part, "size", None) or {}
    found: dict[str, int] = {}
    for edge in _EDGES.values():
        value = size.get(edge) if isinstance(size, Mapping) else getattr(size, edge, None)
        if isinstance(value, int):
            found[edge] = value
    return found if len(found) == len(_EDGES) else {}


def known_arguments(processor: Any) -> frozenset[str] | None:
    """Return the names of the arguments of a processor and its parts, or None if it accepts any undeclared argument."""
    parts = [one for one in (processor, *(getattr(processor, name, None) for name in _PARTS)) if one is not None]
    named: set[str] = set()
    is_open = False
    for part in parts:
        typed = [*_typed(part)]
        named.update(typed)
        for method in _METHODS:
            parameters = _parameters(getattr(type(part), method, None))
            named.update(one.name for one in parameters if one.kind is not one.VAR_KEYWORD)
            takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
            is_open = is_open or (takes_any and method == "__call__" and not typed)
        if part is not processor:
            named.update(name for name in vars(part) if not name.startswith("_"))
    return None if is_open else frozenset(named - _NO_ARGUMENTS - {*_PARTS, "tokenizer", "chat_template"})


def _typed(part: Any) -> Iterable[str]:
    """Yield the argument names that Transformers declares in TypedDicts, as types of `**kwargs`."""
    yield from getattr(getattr(part, "valid_kwargs", None), "__annotations__", {})
    scopes = getattr(getattr(part, "valid_processor_kwargs", None), "__annotations__", {})
    for scope in _SCOPES:
        if scope in scopes:
            yield scope
            yield from getattr(_resolved(part, scope), "__annotations__", {})


def _resolved(part: Any, scope: str) -> Any:
    """Return the TypedDict of a scope such as `images_kwargs`, or None if its annotation cannot be resolved."""
    import typing

    try:
        return typing.get_type_hints(part.valid_processor_kwargs).get(scope)
    except (NameError, TypeError, AttributeError):
        return None


def _parameters(method: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(method).parameters.values())
    except (TypeError, ValueError):
        return []


def _some(names: Iterable[str]) -> str:
    """Return some names as a list for a hint. Names in `ARGUMENTS` come first."""
    return ", ".join(sorted(names, key=lambda name: (name not in ARGUMENTS, name))[:_NAMED])
