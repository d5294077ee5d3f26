"""Names that tell several loaded engines apart: `shapes`, `shapes (Transformers)`, `shapes (dtype=bfloat16)`."""

from __future__ import annotations

from collections.abc import Sequence

from vlmtui.domain.backend_choice import BackendChoice
from vlmtui.domain.engine import REMOTE_BACKEND, LoadSpec

_OF_FAMILY = {"limit_mm_per_prompt", "placeholders"}
"""A server's arguments that follow from the model's family."""


def kind_of(spec: LoadSpec) -> str:
    """Return what runs it: `vLLM`, `Transformers`, `vLLM 0.23.0`, `server`."""
    return "server" if spec.backend == REMOTE_BACKEND else BackendChoice.of(spec).title


def distinction(spec: LoadSpec, others: Sequence[LoadSpec]) -> str:
    """Return the differences between an engine and others of the same name: its kind, and its arguments that others
    lack or have with another value. Empty if there is no other, or if only the other one has such arguments."""
    same = [one for one in others if one.name == spec.name and one != spec]
    told = [kind_of(spec)] if any(kind_of(one) != kind_of(spec) for one in same) else []
    alike = [one for one in same if kind_of(one) == kind_of(spec)]
    if any(one.family != spec.family for one in alike):
        told.append(f"family={spec.family or 'unknown'}")
    for name, value in sorted(spec.engine_args.items()):
        if spec.backend == REMOTE_BACKEND and name in _OF_FAMILY:
            continue
        if any(one.engine_args.get(name) != value for one in alike):
            told.append(f"{name}={value}")
    return ", ".join(told)


def labels(specs: Sequence[LoadSpec]) -> list[str]:
    """Return a name for each engine, with its differences from the others."""
    return [f"{spec.name} ({found})" if (found := distinction(spec, specs)) else spec.name for spec in specs]
