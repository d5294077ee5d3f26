"""Checks before a model is loaded: whether it runs here, whether it fits, and whether its own code may run."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vlmtui.config.trust import TrustStore
from vlmtui.domain.engine import REMOTE_BACKEND
from vlmtui.engine.machine import Machine
from vlmtui.engine.memory_fit import Fit, check_fit, fit_text
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.registry.engine_values import with_engine_args
from vlmtui.registry.match import Model, with_trust
from vlmtui.registry.remote_code import RemoteCode, remote_code_of
from vlmtui.registry.routes import model_closed


class LoadOption(msgspec.Struct, frozen=True):
    """A choice. `model` is loaded then; None: nothing."""

    label: str
    model: Model | None = None
    trusts_code: bool = False
    """Whether choosing it permits the repository's own code."""


class LoadCheck(msgspec.Struct, frozen=True):
    """A check that needs a decision. The first option is the safe one."""

    title: str
    text: str
    options: tuple[LoadOption, ...]


_BACK = LoadOption("Back")
_NAMES_SHOWN = 8


class LoadChecks:
    """Finds decisions to be made before a load. Reads a few small files."""

    def __init__(self, store: TrustStore) -> None:
        self._store = store

    def first(self, model: Model, machine: Machine | None, *, size_accepted: bool = False) -> LoadCheck | None:
        """Return the next decision; None if the model may be loaded. Without a machine, the size is not checked."""
        if model.spec.backend == REMOTE_BACKEND:
            return None  # nothing is loaded here
        if error := model_closed(model.family, model.spec):
            said = "\n\n".join(text for text in (error.message, error.detail, error.hint) if text)
            return LoadCheck("This model does not run here", said, (_BACK,))
        if not size_accepted and (check := self._too_big(model, machine)):
            return check
        return self._foreign_code(model)

    def allowed(self, model: Model) -> Model:
        """Return the model with permission to run its own code if it needs that and the user gave it before."""
        if not model.family.trust_remote_code or model.spec.trust_remote_code:
            return model
        try:
            code = remote_code_of(model.spec.model)
        except VlmtuiError:
            return model  # the dialog says why
        return with_trust(model, code) if self._store.is_trusted(code) else model

    def remember(self, model: Model) -> None:
        """Store the permission for the code at this revision. Raises VlmtuiError if the code has changed meanwhile,
        or if the permission cannot be stored."""
        code = remote_code_of(model.spec.model)
        if with_trust(model, code) != model:
            raise bad_input(f"The code of {model.spec.name} has just changed.", hint="Choose the model again.")
        self._store.trust(code)

    def _foreign_code(self, model: Model) -> LoadCheck | None:
        if not model.family.trust_remote_code or model.spec.trust_remote_code:
            return None
        try:
            code = remote_code_of(model.spec.model)
        except VlmtuiError as error:
            said = "\n\n".join(text for text in (error.message, error.detail, error.hint) if text)
            return LoadCheck("Can't run this model's own code", said, (_BACK,))
        changes = self._store.changes(code)
        changed = f"You allowed it before, but these have changed: {_names(changes)}.\n\n" if changes else ""
        text = (
            f"{changed}{code.model} comes with its own Python code ({_which(code)}), and does not load without it. It "
            "runs with all your rights on this machine. Say yes only if you have read it or trust its author.\n\n"
            "The answer is remembered for this code; when it changes, you are asked again."
        )
        yes = LoadOption("Let it run", with_trust(model, code), True)
        return LoadCheck("Let this model run its own code?", text, (_BACK, yes))

    @staticmethod
    def _too_big(model: Model, machine: Machine | None) -> LoadCheck | None:
        verdict = check_fit(model, machine)
        if machine is None or verdict.fit is Fit.UNKNOWN or (verdict.fit is not Fit.NO and not verdict.advice):
            return None
        options = [_BACK]
        if verdict.settings:
            options.append(LoadOption(f"Load with {verdict.advice}", with_engine_args(model, verdict.settings)))
        options.append(LoadOption("Load it as it is", model))
        return LoadCheck("This model probably does not fit", fit_text(verdict, machine), tuple(options))


def _which(code: RemoteCode) -> str:
    if code.files is not None:
        count = len(code.files) - 1
        which = f"{count} Python file{'' if count == 1 else 's'} of that folder"
    elif code.revision is not None:
        which = f"revision {code.revision[:12]}"
    else:
        which = "the revision that is downloaded next"
    return f"{which}, and the code of {code.repository}" if code.repository else which


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"{shown} and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else shown
