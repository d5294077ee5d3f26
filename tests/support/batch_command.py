"""`vlmtui batch` as a process, with the worker that all tests share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from vlmtui.paths import Paths


class BatchCommand:
    """Runs the real command line in its own folder; it writes `out.jsonl` there."""

    def __init__(self, folder: Path, paths: Paths) -> None:
        self.output = folder / "out.jsonl"
        self.folder = folder
        self.error = ""
        names = {name: value for name, value in os.environ.items() if not name.startswith("VLMTUI_")}
        self.environment = {**names, "VLMTUI_DATA_DIR": str(paths.data.parent)}

    def __call__(self, *arguments: str, code: int = 0, stdin: str = "") -> dict[str, Any]:
        """Run the command and return its summary."""
        command = [sys.executable, "-m", "vlmtui", "batch", "-o", str(self.output), "--json", *arguments]
        ran = subprocess.run(
            command, check=False, env=self.environment, input=stdin, capture_output=True, text=True, cwd=self.folder
        )
        self.error = ran.stderr
        assert ran.returncode == code, ran.stderr
        summary: dict[str, Any] = json.loads(ran.stdout) if ran.stdout else {}
        return summary

    def lines(self) -> list[dict[str, Any]]:
        """The lines of the output."""
        return [json.loads(line) for line in self.output.read_text("utf-8").splitlines()]

    def answers(self) -> dict[str, str]:
        """Answers by id. Fails if an id occurs twice."""
        found = {line["id"]: line["answer"] for line in self.lines()}
        assert len(found) == len(self.lines())
        return found
