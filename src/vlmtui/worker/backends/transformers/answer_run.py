"""One call of `generate`, in a thread of its own: token by token, until each of its answers is complete or stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from vlmtui.worker.backends.transformers.answer_reader import AnswerPiece
from vlmtui.worker.backends.transformers.devices import input_device
from vlmtui.worker.backends.transformers.loading import LoadedModel
from vlmtui.worker.backends.transformers.prompt_inputs import PromptInputs
from vlmtui.worker.backends.transformers.sampling_plan import SamplingPlan
from vlmtui.worker.backends.transformers.token_chooser import BatchChooser, Logprobs, TokenChooser, UnlikeAlone

TakePiece = Callable[[int, Logprobs | None], tuple[AnswerPiece, bool]]
"""Reads a token; returns what is new, and whether the answer is complete."""
_NO_STOPS = {"eos_token_id": [-1], "pad_token_id": 0}
"""Each row's chooser knows where it ends. `generate` would replace None by the model's own EOS tokens, and puts the
other token into rows that have ended."""


class AnswerRow:
    """One answer. `take` and `post` are called in the thread that runs it. `forced`: these tokens are taken instead of
    chosen, to score them."""

    def __init__(
        self,
        plan: SamplingPlan,
        take: TakePiece,
        post: Callable[[AnswerPiece], object],
        forced: Sequence[int] = (),
    ) -> None:
        self.plan = plan
        self.forced = forced
        self._take = take
        self._post = post
        self._stopped = threading.Event()

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def stop(self) -> None:
        """End it before its next token."""
        self._stopped.set()

    def take(self, token: int, logprobs: Logprobs | None) -> bool:
        """Post what the token brings; return whether the answer is complete."""
        piece, is_complete = self._take(token, logprobs)
        self._post(piece)
        return is_complete

    @property
    def most(self) -> int:
        """The most tokens that it may have."""
        return len(self.forced) or self.plan.used.max_tokens or 1


def run_answers(
    loaded: LoadedModel,
    inputs: PromptInputs,
    rows: Sequence[AnswerRow],
    between_tokens: Callable[[], None],
    *,
    expected: Any = None,
) -> None:
    """Generate the answers of all rows to one prompt, in one batch. Blocking. `between_tokens` may raise to end all.

    `expected`: the scores of the first token that each row has to have (see `first_scores`). Raises UnlikeAlone if one
    has not, or if the model fails before that; then nothing has been said.
    """
    import torch

    choosers = [TokenChooser(row.plan, inputs.ids, row.take, row.forced, _stop_of(row)) for row in rows]
    chooser = BatchChooser(choosers, between_tokens, expected)
    try:
        with torch.inference_mode():
            loaded.model.generate(
                **_tensors(loaded.model, inputs, len(rows)),
                logits_processor=[chooser],
                stopping_criteria=[chooser.should_stop],
                max_new_tokens=max(row.most for row in rows),
                do_sample=False,
                **(_NO_STOPS if len(rows) > 1 or any(row.plan.further.ignore_eos for row in rows) else {}),
            )
    except (RuntimeError, ValueError, IndexError, TypeError, AttributeError) as error:
        if not chooser.awaits_check or "CUDA error" in str(error):
            raise
        raise UnlikeAlone(str(error)) from error


def _stop_of(row: AnswerRow) -> Callable[[], bool]:
    return lambda: row.is_stopped


def first_scores(loaded: LoadedModel, inputs: PromptInputs) -> Any:
    """Return the scores of the first token after the prompt alone: (vocabulary,)."""
    import torch

    found: list[Any] = []

    def keep(_: Any, scores: Any) -> Any:
        found.append(scores[0].float().clone())
        return scores

    with torch.inference_mode():
        loaded.model.generate(
            **_tensors(loaded.model, inputs, 1), logits_processor=[keep], max_new_tokens=1, do_sample=False
        )
    return found[0]


def _tensors(model: Any, inputs: PromptInputs, rows: int) -> dict[str, Any]:
    """Return the inputs on the model's device, in its number format, as a processor gives them for so many equal
    prompts: whether it has a row a prompt or puts the media of all behind each other, they follow along axis 0."""
    import torch

    device = input_device(model)

    def placed(value: Any) -> Any:
        kind = model.dtype if value.is_floating_point() else value.dtype
        found = value.to(device, kind)
        return found if rows == 1 or not found.ndim else torch.cat([found] * rows)

    found: dict[str, Any] = {}
    for name, value in inputs.tensors.items():
        if isinstance(value, torch.Tensor):
            found[name] = placed(value)
        elif isinstance(value, list) and all(isinstance(one, torch.Tensor) for one in value):
            kinds = [one.to(device, model.dtype if one.is_floating_point() else one.dtype) for one in value]
            found[name] = kinds * rows
        else:
            found[name] = value * rows if isinstance(value, list) else value
    return found
