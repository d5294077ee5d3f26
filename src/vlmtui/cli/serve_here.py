"""`vlmtui serve MODEL --run`: starts the model's server on this machine, and connects to it."""

from __future__ import annotations

import sys

import msgspec

from vlmtui.bootstrap import Application, open_app
from vlmtui.cli.ask_engine import AskSetup, ready_engine
from vlmtui.cli.interrupts import run_interruptible
from vlmtui.cli.output import is_tty, note, print_json, stay_note
from vlmtui.cli.serve import plan_json, print_plan
from vlmtui.engine.machine import Machine
from vlmtui.engine.serve_plan import RankLayout, ServePlan, plan_running, running_spec
from vlmtui.engines.records import Engines, choose_engine
from vlmtui.engines.server_program import server_program
from vlmtui.registry.match import Model
from vlmtui.session.async_store import AsyncStore
from vlmtui.worker.backends import no_vllm


def serve_here(application: Application, model: Model, layout: RankLayout, *, as_json: bool) -> int:
    """Print the command line, start it in a worker, and open the app on it; without a terminal, stay with it until
    interrupted or until it ends. Raises VlmtuiError."""
    chosen = choose_engine(Engines(application.paths))
    if chosen is None:
        raise no_vllm()
    plan = plan_running(model, layout, Machine.measure(), for_cpu=server_program(chosen).is_for_cpu)
    served = served_here(model, layout)
    if not as_json:
        print_plan(plan)
    if not as_json and is_tty(sys.stdin) and is_tty(sys.stdout):
        return _open(application, served)
    return run_interruptible(lambda: _stay(application, served, plan, as_json=as_json))


def served_here(model: Model, layout: RankLayout) -> Model:
    """Return the model to be run by a server on this machine."""
    return msgspec.structs.replace(model, spec=running_spec(model, layout))


def _open(application: Application, model: Model) -> int:
    store = AsyncStore(application.paths)
    try:
        status, report = open_app(application, store, model=None, served=model)
    finally:
        store.close_now()
    if report is not None and report.stays and report.model is not None:
        note(stay_note(report.model, report.keep_alive_s))
    return status


async def _stay(application: Application, model: Model, plan: ServePlan, *, as_json: bool) -> int:
    """Tell the address once it listens, and wait. The server ends with this command, unless other clients use it."""
    settings = msgspec.structs.replace(application.settings, keep_alive="0")
    setup = AskSetup(msgspec.structs.replace(application, settings=settings), model, True, as_json)
    async with ready_engine(setup) as (engine, info, load_s):
        if as_json:
            print_json({**plan_json(plan), "url": info.address, "load_s": round(load_s, 1)})
        else:
            note(f"{model.spec.name} is served at {info.address} after {load_s:.0f} s. Ctrl+C ends it.")
        error = await engine.closed()
    if error is not None:
        raise error
    return 0
