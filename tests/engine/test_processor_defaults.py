"""Each default that a record states for an argument of its processor is what the installed code has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vlmtui.registry.loader import Registry

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]


def test_every_documented_default_equals_its_source() -> None:
    tool = [sys.executable, str(ROOT / "tools/processor_defaults.py")]
    done = subprocess.run(tool, capture_output=True, text=True, check=False, timeout=300, cwd=ROOT)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one for one in found if not one["same"]] == [] and done.returncode == 0, done.stderr[-2000:]
    stated = {
        (family.family, name)
        for family in Registry.bundled().values()
        for name, argument in family.processor.items()
        if argument.default is not None
    }
    assert {(one["family"], one["argument"]) for one in found} == stated and stated
