#!/usr/bin/env python3
"""Try the wheel before it is published: `python3 tools/release_check.py`. Works in a temporary folder.

Builds the wheel from the checkout's files. For each of Python 3.11 to 3.13 on this machine, pipx installs it into an
empty environment with an empty home. Then tries a user's first steps: `--version`, `--help`, a page of the
documentation, a prompt with a video, `doctor`, and the removal. Then `uv tool` installs it, and `uvx` runs it. If there
is an engine (`--engine`, by default the checkout's `.venv`), adds it and asks the bundled model about the bundled
image.

Prints a table. Exit code 1 if a step fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from fresh_check import ANSWER, ROOT, Trial, build_wheel, print_table, pythons, version_of

HEAD = ("Python", "install s", "version", "help", "video", "doctor", "answer", "removed", "uv tool", "uvx")
NEWEST = 13
"""Minor version of the newest Python that the package supports."""
Outcome = tuple[bool, str]


class Installation:
    """The wheel, installed by pipx for one interpreter."""

    def __init__(self, python: Path, wheel: Path, pipx: Path, where: Path) -> None:
        self._trial = Trial(where, configured=True, cache=None)
        self._folder, self._pipx = where, pipx
        self._version = wheel.name.split("-")[1]
        self._trial.env.update({"PIPX_HOME": str(where / "pipx"), "PIPX_BIN_DIR": str(where / "bin")})
        self._trial.env.update(
            {"COLUMNS": "80", "UV_TOOL_DIR": str(where / "tools"), "UV_TOOL_BIN_DIR": str(where / "uv")}
        )
        self.seconds, _ = self._trial.run(pipx, "install", "--python", python, wheel)
        self._vlmtui = where / "bin" / "vlmtui"

    def _run(self, *words: object) -> subprocess.CompletedProcess[str]:
        return self._trial.run(self._vlmtui, *words, check=False)[1]

    def version(self) -> Outcome:
        said = self._run("--version").stdout.strip()
        return said.split()[-1:] == [self._version], said

    def help(self) -> Outcome:
        """List the commands, and open a documentation page, which the wheel must contain."""
        commands, page = self._run("--help"), self._run("help", "using")
        headings = [line.removeprefix("# ") for line in (ROOT / "docs/using.md").read_text("utf-8").splitlines()[:1]]
        told = "doctor" in commands.stdout and headings[0].lower() in page.stdout.lower()
        return told and not commands.returncode + page.returncode, "ok" if told else page.stderr.strip() or "no page"

    def video(self) -> Outcome:
        """Read the bundled video with the newest PyAV that pip finds."""
        done = self._run(
            "prompt", "shapes", "--video", ROOT / "src/vlmtui/bundled/samples/moving-circle.mp4", "What moves?"
        )
        return done.returncode == 0, "ok" if done.returncode == 0 else done.stderr.strip()[-80:]

    def doctor(self) -> Outcome:
        """Run `doctor` to its end. Its findings depend on the machine; without an engine it must say so."""
        done = self._run("doctor", "--json")
        try:
            checks = json.loads(done.stdout)
        except ValueError:
            return False, (done.stderr or done.stdout).strip()[-80:]
        return "Traceback" not in done.stderr, f"{len(checks.get('checks', checks))} checks"

    def answer(self, engine: Path) -> Outcome:
        """Return the bundled model's answer about the bundled image, from an existing engine."""
        added = self._run("engines", "add", engine)
        if added.returncode:
            return False, added.stderr.strip()[-80:]
        _, said = self._trial.ask(self._vlmtui)
        return ANSWER.search(said) is not None, said

    def with_uv(self, *words: object) -> Outcome:
        """Start the program by `uv tool install`, or without installing it by `uv tool run`, which is `uvx`."""
        done = self._trial.run(self._pipx.with_name("uv"), "tool", *words, check=False)[1]
        program = [self._folder / "uv" / "vlmtui", "--version"] if words[0] == "install" else []
        said = self._trial.run(*program, check=False)[1] if program and not done.returncode else done
        good = said.stdout.split()[-1:] == [self._version]
        return good, "ok" if good else said.stderr.strip()[-80:]

    def remove(self) -> Outcome:
        self._trial.run(self._pipx, "uninstall", "vlmtui")
        left = [path for path in (self._vlmtui, self._folder / "pipx" / "venvs" / "vlmtui") if path.exists()]
        return not left, f"left: {left}" if left else "yes"


def try_release(python: Path, wheel: Path, pipx: Path, where: Path, engine: Path | None) -> tuple[bool, list[str]]:
    """Return True if all steps succeed, and a row of the table."""
    installed = Installation(python, wheel, pipx, where)
    row, good = [version_of(python), f"{installed.seconds:.0f}"], True
    asked: Callable[[], Outcome] = (lambda: installed.answer(engine)) if engine else (lambda: (True, "no engine here"))
    told = (installed.version, installed.help, installed.video, installed.doctor)
    by_uv = ("--python", python)
    tools: tuple[Callable[[], Outcome], ...] = (
        lambda: installed.with_uv("install", *by_uv, wheel),
        lambda: installed.with_uv("run", *by_uv, "--from", wheel, "vlmtui", "--version"),
    )
    for check in (*told, asked, installed.remove, *tools):
        is_good, said = check()
        good = good and is_good
        row.append(said if is_good else f"WRONG: {said}")
    return good, row


def has_vllm(python: Path) -> bool:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    return python.is_file() and subprocess.run([str(python), "-c", code], check=False).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Try the wheel in empty environments, before it is published.")
    parser.add_argument("--python", action="append", type=Path, help="this interpreter instead of all; may be repeated")
    parser.add_argument("--engine", type=Path, help="the Python of an environment with vLLM (default: .venv's)")
    options = parser.parse_args()
    found = options.python or [one for one in pythons() if int(version_of(one).split(".")[1]) <= NEWEST]
    if not found:
        print("No Python 3.11 to 3.13 is here.", file=sys.stderr)
        return 1
    own = ROOT / ".venv" / "bin" / "python"
    engine = options.engine or (own if has_vllm(own) else None)
    rows: list[list[str]] = []
    good = True
    with tempfile.TemporaryDirectory(prefix="release-") as temporary:
        trial = Trial(Path(temporary) / "build", configured=True, cache=None)
        wheel, pipx = build_wheel(trial, found[-1])
        trial.run(pipx.with_name("pip"), "install", "--quiet", "uv")
        print(f"{wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
        for number, python in enumerate(found):
            is_good, row = try_release(python, wheel, pipx, Path(temporary) / str(number), engine)
            good = good and is_good
            rows.append(row)
    print_table(rows, HEAD)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
