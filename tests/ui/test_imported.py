"""Continuing an imported conversation: what the user sees, and which model is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.scripted_engine import ScriptedHost
from tests.support.waiting import until, until_chat
from tests.ui.conftest import MakeApp
from tests.unit.store.made import opened
from vlmtui.paths import Paths
from vlmtui.session.resume import ResumePoint, resume_point
from vlmtui.store.document import add_document, read_document


def imported(folder: Path, **made_by: str) -> ResumePoint:
    """Import a conversation that somebody else had with this model; return how to resume it."""
    recipe = {
        "model": "m", "engine": "vLLM", "engine_version": "0.32.0", "adapter": "/their/lora",
        "engine_args": {"reasoning_parser_plugin": "/tmp/evil.py"}, "made_by": made_by,
    }  # fmt: skip
    user = {"role": "user", "parts": [{"type": "text", "text": "go"}], "created_ms": 1, "id": 1, "active_child": 2}
    answer = {"role": "assistant", "parts": [{"type": "text", "text": "gone"}], "created_ms": 2, "id": 2, "parent": 1}
    document: dict[str, Any] = {
        "format": "vlmtui conversation", "version": 1, "title": "t", "model": "m", "created_ms": 1, "updated_ms": 2,
        "active_root": 1,
        "turns": [{**user, "state": "complete"}, {**answer, "state": "complete", "recipe": recipe}],
    }  # fmt: skip
    store = opened(Paths.below(folder).data)
    try:
        found = add_document(store, read_document(json.dumps(document).encode()), folder).conversation
        return resume_point(store, found)
    finally:
        store.close()


async def test_a_server_of_theirs_is_named_and_not_contacted(make_app: MakeApp, tmp_path: Path) -> None:
    there = imported(tmp_path, name="cats", model="cats", family="shapes", backend="remote", server="http://thief:1")
    host = ScriptedHost()
    app = make_app(host, resume=there)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: any("was not contacted" in one.message for one in app._notifications))
        told = " ".join(one.message for one in app._notifications)
        assert "cats at http://thief:1" in told and "start with --engine ADDRESS" in told
        await until(pilot, lambda: any("not used here" in one.message for one in app._notifications))
        assert host.engines == []


async def test_a_model_that_is_here_goes_on_without_their_arguments(make_app: MakeApp, tmp_path: Path) -> None:
    there = imported(tmp_path, name="shapes", model="/their/shapes", family="shapes", backend="vllm")
    host = ScriptedHost(load=[])
    app = make_app(host, resume=there)
    async with app.run_test(size=(100, 30)) as pilot:
        await until_chat(pilot)
        await until(pilot, lambda: any("not used here" in one.message for one in app._notifications))
        told = " ".join(one.message for one in app._notifications)
        assert "adapter /their/lora, reasoning_parser_plugin=/tmp/evil.py" in told
        (engine,) = host.engines
        assert engine.spec.name == "shapes" and "reasoning_parser_plugin" not in engine.spec.engine_args
