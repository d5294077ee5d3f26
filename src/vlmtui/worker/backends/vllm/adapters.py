"""LoRA adapters of requests. Does not import vLLM before it is needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input


class AdapterShelf:
    """Numbers the adapters that requests name, each by its folder.

    On a CPU, vLLM 0.32 computes requests without an adapter with that of its last slot (its index is -1, in
    `lora/ops/torch_ops`), so that one slot has to stay empty there.
    """

    def __init__(self, spec: LoadSpec, arguments: Mapping[str, Any], *, on_cpu: bool) -> None:
        """`arguments` are the engine's. Downloads the record's adapter if it is missing."""
        self._own = _of_record(spec)
        self._is_enabled = bool(arguments.get("enable_lora"))
        slots = arguments.get("max_loras", 1)
        self._most = slots - 1 - (self._own is not None) if on_cpu else None
        self._numbers: dict[str, int] = {}

    def of(self, folder: str) -> Any:
        """Return vLLM's request for the adapter in a folder, or for the record's own if empty; None: no adapter.

        Raises VlmtuiError if the engine was loaded without LoRA, or the folder has no adapter.
        """
        if not folder:
            return self._own
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

        first = 2 if self._own is None else self._own.lora_int_id + 1
        number = self._numbers.setdefault(folder, first + len(self._numbers))
        return LoRARequest(f"{Path(folder).name}-{number}", number, folder)


def _of_record(spec: LoadSpec) -> Any:
    """Return the LoRA adapter of the record, or None. Downloads its files if they are missing."""
    if spec.lora is None:
        return None
    from huggingface_hub import snapshot_download
    from vllm.lora.request import LoRARequest

    folder = Path(spec.model)
    if not folder.is_dir():
        wanted = f"{spec.lora.path}/*"
        folder = Path(snapshot_download(spec.model, revision=spec.revision, allow_patterns=[wanted]))
    return LoRARequest(spec.lora.name, spec.lora.id, str(folder / spec.lora.path))
