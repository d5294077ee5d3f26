#!/usr/bin/env python3
"""Try the set-up as a newcomer would: `python3 tools/fresh_check.py`. Works in a temporary folder, which it removes.

For every Python from 3.11 on this machine: copies the checkout, runs `tools/setup_env.py` with an empty environment
(`env -i`) and home, and asks the bundled model one question; with PyPI alone, and again if pip's configuration offers a
CPU build of PyTorch. Then the wheel: builds it, installs it with pipx, installs an engine with the app, asks one
question, and removes everything. Prints a table of seconds, GB and answers. Exit code 1: an answer was wrong, or files
were left.

`--one` tries only the wheel with the newest Python, using cached downloads (for CI, which has just run the set-up). Of
the environment, only proxies and the file of certificates are passed on.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
QUESTION = "What is in this image?"
ANSWER = re.compile(r"red circle", re.IGNORECASE)
NETWORK = (
    "SSL_CERT_FILE",
    "PIP_CERT",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "https_proxy",
    "http_proxy",
    "no_proxy",
)
NAMES = ("python3.11", "python3.12", "python3.13", "python3.14")
LIMIT_SECONDS = 3600
HEAD = ("Python", "packages from", "set-up s", "again s", "first answer s", "GB", "answer")


class Trial:
    """One installation in a temporary folder, isolated from this user's settings and caches."""

    def __init__(self, folder: Path, *, configured: bool, cache: Path | None) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.env = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "LANG": "C.UTF-8"}
        self.env.update({name: os.environ[name] for name in NETWORK if name in os.environ})
        if configured:
            self.env.update({name: value for name, value in os.environ.items() if name.startswith("PIP_")})
            given = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
            if (given / "pip").is_dir():
                shutil.copytree(given / "pip", self.home / ".config" / "pip")
        else:
            self.env["PIP_CONFIG_FILE"] = os.devnull
        if cache is not None:
            self.env["UV_CACHE_DIR"] = str(cache)

    def run(self, *command: object, check: bool = True) -> tuple[float, subprocess.CompletedProcess[str]]:
        """Run a command; return its seconds and result. Exits with the output if it fails and `check` is set."""
        started = time.monotonic()
        done = subprocess.run(
            [str(one) for one in command],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        took = time.monotonic() - started
        if check and done.returncode != 0:
            said = (done.stdout + done.stderr)[-6000:]
            sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{said}")
        return took, done

    def ask(self, vlmtui: Path) -> tuple[float, str]:
        """Ask the model; return the seconds to the answer, and the answer."""
        image = ROOT / "src" / "vlmtui" / "bundled" / "samples" / "circle.png"
        took, done = self.run(vlmtui, "ask", "--keep-alive", "0", "--image", image, QUESTION)
        return took, done.stdout.strip()


def pythons() -> list[Path]:
    """Return one interpreter for each version from 3.11 on: from PATH, then from pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [Path(path) for name in NAMES if (path := shutil.which(name))]
    candidates += sorted(pyenv.glob("3.1[1-4]*/bin/python"))
    found: dict[str, Path] = {}
    for candidate in candidates:
        told = subprocess.run(
            [str(candidate), "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"],
            capture_output=True,
            text=True,
            check=False,
        )
        version, _, executable = told.stdout.strip().partition(" ")
        if version in [name.removeprefix("python") for name in NAMES]:
            found.setdefault(version, Path(executable))
    return [found[version] for version in sorted(found, key=lambda one: int(one.partition(".")[2]))]


def version_of(python: Path) -> str:
    code = "import platform; print(platform.python_version())"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def offers_cpu_torch(python: Path, torch: str) -> bool:
    """Return True if pip's configuration offers a CPU build of PyTorch for this interpreter."""
    options = ["--dry-run", "--ignore-installed", "--no-deps"]
    command = [str(python), "-m", "pip", "install", *options, f"torch=={torch}+cpu"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def gigabytes(folder: Path) -> float:
    """Return the disk space of a folder in GB; hard links count once."""
    kilobytes = subprocess.run(["du", "-sk", str(folder)], capture_output=True, text=True, check=True).stdout.split()[0]
    return int(kilobytes) * 1024 / 1e9


def copy_of(checkout: Path, target: Path) -> None:
    """Copy the files that git tracks, or would add."""
    command = ["git", "-C", str(checkout), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    for name in filter(None, subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")):
        if (checkout / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / name, target / name)


def try_checkout(checkout: Path, python: Path, where: Path, *, configured: bool, cache: Path | None) -> list[str]:
    """Set up a copy of the checkout and ask the model; return a row of the table."""
    trial = Trial(where, configured=configured, cache=cache)
    copy = where / "checkout"
    copy_of(checkout, copy)
    setup, _ = trial.run(python, copy / "tools" / "setup_env.py")
    again, _ = trial.run(python, copy / "tools" / "setup_env.py")
    asked, answer = trial.ask(copy / ".venv" / "bin" / "vlmtui")
    size = gigabytes(copy / ".venv")
    is_small = any((copy / ".venv").glob("lib/python*/site-packages/torch-*+cpu.dist-info"))
    kind = "configuration, CPU torch" if is_small else "PyPI alone"
    return [version_of(python), kind, f"{setup:.0f}", f"{again:.2f}", f"{setup + asked:.0f}", f"{size:.1f}", answer]


def build_wheel(trial: Trial, python: Path) -> tuple[Path, Path]:
    """Return a wheel of the checkout, built in isolation, and a pipx."""
    tools = trial.folder / "tools" / "bin"
    copy_of(ROOT, trial.folder / "checkout")
    trial.run(python, "-m", "venv", tools.parent)
    trial.run(tools / "pip", "install", "--quiet", "pipx", "build")
    trial.run(tools / "python", "-m", "build", "--wheel", "--outdir", trial.folder / "dist", trial.folder / "checkout")
    [wheel] = (trial.folder / "dist").glob("*.whl")
    return wheel, tools / "pipx"


def try_wheel(python: Path, where: Path, *, cache: Path | None) -> list[str]:
    """Install the wheel with pipx and an engine with the app, ask once, remove everything; return a row of the
    table."""
    trial = Trial(where, configured=False, cache=cache)
    trial.env.update({"PIPX_HOME": str(where / "pipx"), "PIPX_BIN_DIR": str(where / "bin")})
    started = time.monotonic()
    wheel, pipx = build_wheel(trial, python)
    trial.run(pipx, "install", "--python", python, wheel)
    vlmtui = where / "bin" / "vlmtui"
    _, refused = trial.run(vlmtui, "ask", QUESTION, check=False)
    if refused.returncode != 1 or "vlmtui engines install" not in refused.stderr:
        sys.exit(f"Without an engine, ask says: {refused.stderr}")
    trial.run(vlmtui, "engines", "install")
    installed = time.monotonic() - started
    again, _ = trial.run(vlmtui, "engines", "install")
    engines = trial.home / ".local" / "share" / "vlmtui" / "engines"
    size = gigabytes(engines)
    asked, answer = trial.ask(vlmtui)
    [engine] = [one.name for one in engines.iterdir()]
    trial.run(vlmtui, "engines", "remove", engine)
    trial.run(pipx, "uninstall", "vlmtui")
    left = [*engines.iterdir(), *([vlmtui] if vlmtui.exists() else [])]
    if left:
        sys.exit(f"Left behind: {left}")
    times = [f"{installed:.0f}", f"{again:.2f}", f"{installed + asked:.0f}"]
    return [version_of(python), "PyPI alone, pipx", *times, f"{size:.1f}", answer]


def main() -> int:
    parser = argparse.ArgumentParser(description="Try the set-up as a newcomer would.")
    parser.add_argument("--one", action="store_true", help="the newest Python and the wheel alone")
    parser.add_argument("--python", action="append", type=Path, help="this interpreter instead of all; may be repeated")
    parser.add_argument("--cache", type=Path, help="uv's cache to use; else everything is downloaded")
    options = parser.parse_args()
    found = options.python or pythons()
    if not found:
        print("No Python 3.11 or newer is here.", file=sys.stderr)
        return 1
    cache = options.cache or (Path.home() / ".cache" / "uv" if options.one else None)
    torch = re.search(r'^TORCH = "(.*)"', (ROOT / "src/vlmtui/engines/builds.py").read_text("utf-8"), re.MULTILINE)
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="fresh-") as temporary:
        number = 0

        def tried(attempt: list[str]) -> None:
            rows.append(attempt)
            print("  ".join(attempt), flush=True)
            shutil.rmtree(Path(temporary) / str(number), ignore_errors=True)

        def place() -> Path:
            nonlocal number
            number += 1
            return Path(temporary) / str(number)

        for python in [] if options.one else found:
            if torch and offers_cpu_torch(python, torch[1]):
                tried(try_checkout(ROOT, python, place(), configured=True, cache=cache))
            tried(try_checkout(ROOT, python, place(), configured=False, cache=cache))
        tried(try_wheel(found[-1], place(), cache=cache))
    print_table(rows)
    return 0 if all(ANSWER.search(row[-1]) for row in rows) else 1


def print_table(rows: list[list[str]], head: tuple[str, ...] = HEAD) -> None:
    for row in (head, ("---",) * len(head), *rows):
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    sys.exit(main())
