"""A model's own LoRA adapters in Transformers, through peft."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from vlmtui.domain.adapter_choice import adapter_for, adapters_of
from vlmtui.domain.engine import LoadSpec, LoraAdapter
from vlmtui.domain.generation import GenerateRequest
from vlmtui.domain.prompt import attachments_of
from vlmtui.errors import ErrorKind, VlmtuiError


class AdapterSwitch:
    """Puts the right adapter into the model before each answer. For one thread at a time."""

    def __init__(self, model: Any, spec: LoadSpec, revision: str | None) -> None:
        """Load the model's own adapters. Raises VlmtuiError, or whatever Transformers raises. Blocking."""
        self._model = model
        self._spec = spec
        for adapter in adapters_of(spec):
            self._load_own(adapter, revision)
        if adapters_of(spec):
            model.disable_adapters()

    def use(self, request: GenerateRequest) -> None:
        """Have the model compute with its own adapter that fits the request's media. Raises VlmtuiError if the request
        names another."""
        if request.adapter:
            message = "An adapter named by a request does not run in Transformers."
            raise VlmtuiError(ErrorKind.UNSUPPORTED, message, hint="Ask with --backend vllm.")
        own = adapter_for(self._spec, (one.modality for one in attachments_of(request.prompt)))
        name = "" if own is None else own.name
        if name:
            self._model.set_adapter(name)
            self._model.enable_adapters()
        elif adapters_of(self._spec):
            self._model.disable_adapters()

    def _load_own(self, adapter: LoraAdapter, revision: str | None) -> None:
        folder = Path(self._spec.model)
        if folder.is_dir():
            self._load(str(folder / adapter.path), adapter.name)
        else:
            kwargs = {"subfolder": adapter.path} if adapter.path else {}
            self._load(self._spec.model, adapter.name, revision=revision, adapter_kwargs=kwargs)

    def _load(self, source: str, name: str, **how: Any) -> None:
        if importlib.util.find_spec("peft") is None:
            raise VlmtuiError(
                ErrorKind.UNSUPPORTED,
                f"The LoRA adapter {Path(source).name!r} needs the package peft, which is not installed.",
                hint="Install it with the engine: pip install peft",
            )
        found = self._model.load_adapter(source, adapter_name=name, **how)
        wrong = [*found.missing_keys, *found.unexpected_keys, *(str(one) for one in found.mismatched_keys)]
        if wrong:
            self._model.delete_adapter(name)
            raise VlmtuiError(
                ErrorKind.BAD_INPUT,
                f"The LoRA adapter {Path(source).name!r} does not fit this model.",
                detail=f"{len(wrong):,} of its weights have no place, or are missing: {wrong[0]}",
                hint="Was it trained for another model, or for vLLM's names of the weights?",
            )
