"""LoRA adapters of requests. Does not import vLLM before it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vlmtui.domain.adapter_choice import adapter_for, adapters_of
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import GenerateRequest, ScoreRequest
from vlmtui.domain.prompt import attachments_of
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input


class AdapterShelf:
    """Numbers the adapters that requests name, each by its folder.

    On a CPU, vLLM 0.32 computes requests without an adapter with that of its last slot (its index is -1, in
    `lora/ops/torch_ops`), so that one slot has to stay empty there.
    """

    def __init__(self, spec: LoadSpec, arguments: Mapping[str, Any], *, on_cpu: bool) -> None:
        """`arguments` are the engine's. Downloads the record's adapters if they are missing."""
        self._spec = spec
        self._own = {request.lora_name: request for request in _of_record(spec)}
        self._is_enabled = bool(arguments.get("enable_lora"))
        slots = arguments.get("max_loras", 1)
        self._most = slots - 1 - len(self._own) if on_cpu else None
        self._numbers: dict[str, int] = {}

    def of(self, request: GenerateRequest | ScoreRequest) -> Any:
        """Return vLLM's request for the adapter that a request names, or else for the record's own that fits its media;
        None: no adapter.

        Raises VlmtuiError if the engine was loaded without LoRA, or the folder has no adapter.
        """
        folder = request.adapter
        if not folder:
            chosen = adapter_for(self._spec, (one.modality for one in attachments_of(request.prompt)))
            return None if chosen is None else self._own[chosen.name]
        if not self._is_enabled:
            raise VlmtuiError(
                ErrorKind.UNSUPPORTED,
                "The model was loaded without LoRA.",
                hint="Load it with the engine argument enable_lora = true.",
            )
        if not (Path(folder) / "adapter_config.json").is_file():
            raise bad_input(f"The adapter's folder {Path(folder).name!r} is gone.")
        if self._most is not None and folder not in self._numbers and len(self._numbers) >= self._most:
            raise VlmtuiError(
                ErrorKind.UNSUPPORTED,
                f"On a CPU this engine takes {self._most} different adapters.",
                hint="Load the model with a higher max_loras.",
            )
        from vllm.lora.request import LoRARequest

        first = 1 + max((one.lora_int_id for one in self._own.values()), default=1)
        number = self._numbers.setdefault(folder, first + len(self._numbers))
        return LoRARequest(f"{Path(folder).name}-{number}", number, folder)


def _of_record(spec: LoadSpec) -> Iterator[Any]:
    """Yield the LoRA adapters of the record. Downloads their files if they are missing."""
    for adapter in adapters_of(spec):
        from huggingface_hub import snapshot_download
        from vllm.lora.request import LoRARequest

        folder = Path(spec.model)
        if not folder.is_dir():
            wanted = f"{adapter.path}/*"
            folder = Path(snapshot_download(spec.model, revision=spec.revision, allow_patterns=[wanted]))
        yield LoRARequest(adapter.name, adapter.id, str(folder / adapter.path))
