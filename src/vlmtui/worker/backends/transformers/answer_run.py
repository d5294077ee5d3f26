"""One call of `generate`, in a thread of its own: token by token, until it is complete or stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from vlmtui.worker.backends.transformers.answer_reader import AnswerPiece
from vlmtui.worker.backends.transformers.loading import LoadedModel
from vlmtui.worker.backends.transformers.prompt_inputs import PromptInputs
from vlmtui.worker.backends.transformers.sampling_plan import SamplingPlan
from vlmtui.worker.backends.transformers.token_chooser import Logprobs, TokenChooser

TakePiece = Callable[[int, Logprobs | None], tuple[AnswerPiece, bool]]
"""Reads a token; returns what is new, and whether the answer is complete."""


class _Stopped(Exception):
    """Ends `generate` between two tokens."""


_NO_TOKEN = [-1]
"""`generate` would replace None by the model's own EOS tokens."""


class AnswerRun:
    """`take` and `between_tokens` are called in the thread that runs it."""

    def __init__(
        self,
        loaded: LoadedModel,
        inputs: PromptInputs,
        plan: SamplingPlan,
        take: TakePiece,
        between_tokens: Callable[[], None],
        *,
        forced: Sequence[int] = (),
    ) -> None:
        self._loaded = loaded
        self._inputs = inputs
        self._plan = plan
        self._take = take
        self._between_tokens = between_tokens
        self._forced = forced
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End it before the next token; it then returns without an error."""
        self._stopped.set()

    def run(self, post: Callable[[AnswerPiece], object]) -> None:
        """Generate, and post each piece. Blocking."""
        import torch

        def take(token: int, logprobs: Logprobs | None) -> bool:
            piece, is_complete = self._take(token, logprobs)
            post(piece)
            return is_complete

        chooser = TokenChooser(self._plan, self._inputs.ids, take, self._before_token, self._forced)
        try:
            with torch.inference_mode():
                self._loaded.model.generate(
                    **self._tensors(),
                    logits_processor=[chooser],
                    stopping_criteria=[chooser.should_stop],
                    max_new_tokens=len(self._forced) or self._plan.used.max_tokens,
                    do_sample=False,
                    **({"eos_token_id": _NO_TOKEN} if self._plan.further.ignore_eos else {}),
                )
        except _Stopped:
            return

    def _before_token(self) -> None:
        if self._stopped.is_set():
            raise _Stopped
        self._between_tokens()

    def _tensors(self) -> dict[str, Any]:
        """Return the inputs on the model's device, in its number format."""
        import torch

        model = self._loaded.model
        found: dict[str, Any] = {}
        for name, value in self._inputs.tensors.items():
            if isinstance(value, torch.Tensor):
                kind = model.dtype if value.is_floating_point() else value.dtype
                found[name] = value.to(model.device, kind)
            elif isinstance(value, list) and all(isinstance(one, torch.Tensor) for one in value):
                found[name] = [
                    one.to(model.device, model.dtype if one.is_floating_point() else one.dtype) for one in value
                ]
            else:
                found[name] = value
        return found
