"""Hosts with long timeouts, for busy machines."""

from __future__ import annotations

from vlmtui.engine.local.host import Timeouts, WorkerHost
from vlmtui.engine.local.launcher import Launcher
from vlmtui.paths import Paths

PATIENT = Timeouts(answer_s=60.0, inspect_s=60.0)


def patient_host(paths: Paths, launcher: Launcher | None = None) -> WorkerHost:
    return WorkerHost(paths, launcher, PATIENT)
