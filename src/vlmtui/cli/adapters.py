"""The LoRA adapters of a command, and the engine arguments that they need."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from vlmtui.session.adapters import NONE, find_adapter, rank_for, require_allowed
from vlmtui.session.lane_plan import ADAPTER
from vlmtui.session.plan_text import parse_plan


def allow_adapters(arguments: argparse.Namespace, recorded: Iterable[str] = ()) -> None:
    """Have the model loaded with LoRA where the command names adapters.

    recorded: the folders of a document's adapters, which are loaded where the command's `--adapter` is that folder or
    one above it: a document by itself has nothing loaded. Raises VlmtuiError for an adapter that is not there or not
    allowed.
    """
    folders = list(dict.fromkeys(filter(None, recorded)))
    for folder in folders:
        require_allowed(folder, arguments.adapter)
    if not folders and arguments.adapter:
        folders = [arguments.adapter]
    plan = parse_plan(arguments.fan_out) if arguments.fan_out is not None else None
    if plan is not None and plan.parameter == ADAPTER:
        folders += [str(value) for value in plan.values if value != NONE]
    if folders:
        rank = rank_for([find_adapter(folder) for folder in folders])
        own = ["enable_lora=true", f"max_lora_rank={rank}", f"max_loras={len(folders)}"]
        arguments.engine_arg = [*own, *(arguments.engine_arg or ())]
