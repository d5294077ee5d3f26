"""What stands between a choice in the picker and its load, and the ways on. No widgets here."""

from __future__ import annotations

from pathlib import Path

import msgspec

from vlmtui.config.trust import TrustStore, revision_of
from vlmtui.engine.fit import Fit, describe, judge
from vlmtui.engine.machine import Machine
from vlmtui.registry.cache import snapshot_of
from vlmtui.registry.engine_values import with_engine_args
from vlmtui.registry.match import Model, with_trust
from vlmtui.registry.routes import closed


class Way(msgspec.Struct, frozen=True):
    """One way on. `model` is what to load then; None: nothing."""

    label: str
    model: Model | None = None
    trusts: bool = False
    """Whether taking it means a yes to the repository's own code."""


class Obstacle(msgspec.Struct, frozen=True):
    """Something to be told and decided before a load. The first way is the careful one."""

    title: str
    text: str
    ways: tuple[Way, ...]


_BACK = Way("Back")


class Obstacles:
    """Finds them. Reads a few small files."""

    def __init__(self, store: TrustStore) -> None:
        self._store = store

    def first(self, model: Model, machine: Machine | None, *, size_accepted: bool = False) -> Obstacle | None:
        """The next thing to decide; None where the model may be loaded. Without a machine, its size is no question."""
        if error := closed(model.family):
            said = "\n\n".join(text for text in (error.message, error.detail, error.hint) if text)
            return Obstacle("This model does not run here", said, (_BACK,))
        if not size_accepted and (obstacle := self._too_big(model, machine)):
            return obstacle
        return self._foreign_code(model)

    def allowed(self, model: Model) -> Model:
        """The model with leave to run its own code, where it needs it and the user has said yes before."""
        if not model.family.trust_remote_code or model.spec.trust_remote_code:
            return model
        return with_trust(model) if self._store.is_trusted(*_version(model)) else model

    def remember(self, model: Model) -> None:
        """The user said yes to the code of this model's revision. Raises VlmtuiError where it cannot be stored."""
        self._store.trust(*_version(model))

    def _foreign_code(self, model: Model) -> Obstacle | None:
        if not model.family.trust_remote_code or model.spec.trust_remote_code:
            return None
        name, revision = _version(model)
        which = f"revision {revision[:12]}" if revision else "the revision that is downloaded next"
        text = (
            f"{name} brings Python code of its own ({which}), and does not load without it. It runs with all your "
            "rights on this machine. Say yes only if you have read it or trust who wrote it.\n\n"
            "The answer is remembered for this revision."
        )
        return Obstacle("Let this model run its own code?", text, (_BACK, Way("Let it run", with_trust(model), True)))

    @staticmethod
    def _too_big(model: Model, machine: Machine | None) -> Obstacle | None:
        verdict = judge(model, machine)
        if machine is None or verdict.fit is Fit.UNKNOWN or (verdict.fit is not Fit.NO and not verdict.advice):
            return None
        ways = [_BACK]
        settings = [one.strip() for one in verdict.advice.split(",")] if "=" in verdict.advice else []
        if settings:
            ways.append(Way(f"Load with {verdict.advice}", with_engine_args(model, settings)))
        ways.append(Way("Load it as it is", model))
        return Obstacle("This model is likely not to fit", describe(verdict, machine), tuple(ways))


def _version(model: Model) -> tuple[str, str | None]:
    name = model.spec.model
    folder = Path(name)
    return name, revision_of(folder if folder.is_dir() else snapshot_of(name))
