"""What answered each side of a comparison, in a line that tells the sides apart."""

from __future__ import annotations

import msgspec

from vlmtui.inspection.replay import Comparison, EngineFingerprint, engine_of


def has_several_engines(comparison: Comparison) -> bool:
    """Return whether its sides were answered by different engines."""
    return any(side.engine is not None for side in comparison.sides)


def engine_titles(comparison: Comparison) -> list[str]:
    """Return what answered each side: `vLLM 0.32.0 · float32 · cpu`, with the model, its revision and the engine
    arguments as far as those of the sides differ. Hostile."""
    engines = [engine_of(comparison, side) for side in comparison.sides]
    return [" · ".join(filter(None, (_own(one, engines), one.facts, _arguments(one, engines)))) for one in engines]


def _own(one: EngineFingerprint, engines: list[EngineFingerprint]) -> str:
    """Return the model where it is not that of all, with the revision where the same model has several."""
    if all(other.model == one.model and other.revision == one.revision for other in engines):
        return ""
    is_alone = all(other.revision == one.revision for other in engines if other.model == one.model)
    return one.model if is_alone or one.revision is None else f"{one.model} {one.revision[:8]}"


def _arguments(one: EngineFingerprint, engines: list[EngineFingerprint]) -> str:
    """Return the engine arguments that engines with the same facts do not share."""
    alike = [other for other in engines if (other.model, other.facts) == (one.model, one.facts)]
    names = sorted({name for other in alike for name in other.engine_args})
    differing = [name for name in names if any(_value(other, name) != _value(one, name) for other in alike)]
    return ", ".join(f"{name}={_value(one, name)}" for name in differing)


def _value(engine: EngineFingerprint, name: str) -> str:
    return msgspec.json.encode(engine.engine_args[name]).decode() if name in engine.engine_args else "default"
