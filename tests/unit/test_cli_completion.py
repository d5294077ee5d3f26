"""The completion script, in a real bash."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from vlmtui.cli.completion import bash_script
from vlmtui.cli.parser import make_parser


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (("vlmtui", "conv"), {"conversations"}),
        (("vlmtui", "store", "ver"), {"verify"}),
        (("vlmtui", "store", "verify", "--da"), {"--data-dir"}),
        (("vlmtui", "doctor", "--js"), {"--json"}),
        (("vlmtui", "no-such-command-"), set()),
    ],
)
def test_bash_completes_commands_subcommands_and_options(typed: tuple[str, ...], expected: set[str]) -> None:
    script = bash_script(make_parser())
    asked = f'{script}\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _vlmtui; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", asked, "bash", *typed], capture_output=True, text=True, check=True, timeout=60
    )
    assert set(done.stdout.split()) == expected
    assert not done.stderr
