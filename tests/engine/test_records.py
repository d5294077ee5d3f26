"""Every record's engine arguments make real engine arguments of the installed vLLM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import vlmtui.worker

PROGRAM = """
import json
from vllm import AsyncEngineArgs
from vlmtui.registry.loader import Registry
from vlmtui.domain.engine import BackendChoice
from vlmtui.registry.match import engine_args_of

made, wrong = 0, {}
for family in Registry.bundled().values():
    for limits in ({"image": 1}, {"image": 2}, {"video": 1}, None):
        wanted = None if limits is None else {key: count for key, count in limits.items() if key in family.takes}
        try:
            AsyncEngineArgs(model=family.models[0], **engine_args_of(family, wanted, BackendChoice()))
            made += 1
        except Exception as error:
            wrong[family.family] = repr(error)
print(json.dumps({"made": made, "wrong": wrong}))
"""


def test_every_record_makes_real_engine_arguments() -> None:
    site = Path(vlmtui.worker.__file__).parent / "site"
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "0", "VLLM_NO_USAGE_STATS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == {}
    assert found["made"] >= 4 * 78
