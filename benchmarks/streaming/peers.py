"""Chat programs of others, measured like the app where they are installed. Their server is `standin_server`.

Each is looked for in the folder of `--peers` (an environment of its own each, which `--install-peers` makes there by
pip), else on PATH. What is not there, or does not get as far as an answer, is skipped with the reason.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.streaming.engine import NOTES
from benchmarks.streaming.recording import Recording
from benchmarks.streaming.sessions import Figures, Session, p95
from benchmarks.streaming.standin_server import MODEL

_INSTALLED_WITHIN_S = 900.0


class Peer(NamedTuple):
    """How a program is started against the stand-in server, and asked."""

    name: str
    package: str
    command: tuple[str, ...]
    configure: Callable[[Path, int], dict[str, str]]
    """Writes its configuration below a home folder for a server at a port; returns its environment."""
    ready: str
    """What its screen shows once it can be asked."""
    enter: str = "\r"
    """The key that sends."""
    shows_keys: bool = True
    """Whether typed text is shown while an answer streams."""


def _llm(home: Path, port: int) -> dict[str, str]:
    folder = home / "llm"
    folder.mkdir(parents=True, exist_ok=True)
    lines = (f"- model_id: {MODEL}", f"  model_name: {MODEL}", f"  api_base: http://127.0.0.1:{port}/v1")
    (folder / "extra-openai-models.yaml").write_text("\n".join(lines) + "\n")
    return {"LLM_USER_PATH": str(folder), "OPENAI_API_KEY": "none"}


def _elia(home: Path, port: int) -> dict[str, str]:
    folder = home / "config" / "elia"
    folder.mkdir(parents=True, exist_ok=True)
    model = f'name = "openai/{MODEL}"\napi_base = "http://127.0.0.1:{port}/v1"\napi_key = "none"\n'
    (folder / "config.toml").write_text(f'default_model = "openai/{MODEL}"\n[[models]]\n{model}')
    return {"XDG_CONFIG_HOME": str(home / "config"), "XDG_DATA_HOME": str(home / "data"), "OPENAI_API_KEY": "none"}


def _gptme(home: Path, port: int) -> dict[str, str]:
    folder = home / "config" / "gptme"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(
        f'[prompt]\n[env]\nOPENAI_BASE_URL = "http://127.0.0.1:{port}/v1"\nMODEL = "local/{MODEL}"\n'
    )
    return {"XDG_CONFIG_HOME": str(home / "config"), "XDG_DATA_HOME": str(home / "data"), "OPENAI_API_KEY": "none"}


def _oterm(home: Path, port: int) -> dict[str, str]:
    return {"OLLAMA_HOST": f"127.0.0.1:{port}", "OTERM_DATA_DIR": str(home / "oterm"), "OTERM_SPLASH_SCREEN": "0"}


def _vibe(home: Path, port: int) -> dict[str, str]:
    folder = home / "vibe"
    folder.mkdir(parents=True, exist_ok=True)
    provider = f'[[providers]]\nname = "stand"\napi_base = "http://127.0.0.1:{port}/v1"\napi_key_env_var = ""\n'
    model = f'[[models]]\nname = "{MODEL}"\nprovider = "stand"\nalias = "{MODEL}"\n'
    (folder / "config.toml").write_text(f'active_model = "{MODEL}"\n{provider}{model}')
    return {"VIBE_HOME": str(folder), "MISTRAL_API_KEY": "none"}


PEERS = (
    Peer("llm", "llm", ("llm", "chat", "-m", MODEL), _llm, f"Chatting with {MODEL}", shows_keys=False),
    Peer("elia", "elia-chat", ("elia",), _elia, "Elia", enter="\n"),
    Peer("oterm", "oterm", ("oterm",), _oterm, MODEL),
    Peer("gptme", "gptme", ("gptme", "-m", f"local/{MODEL}"), _gptme, "User", shows_keys=False),
    Peer("mistral-vibe", "mistral-vibe", ("vibe",), _vibe, ">"),
)


def install(folder: Path) -> None:
    """Make an environment for each peer that has none yet; what fails is told, and skipped later."""
    for peer in PEERS:
        home = folder / peer.name
        if (home / "bin" / peer.command[0]).exists():
            continue
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        pip = [str(home / "bin" / "pip"), "install", "--quiet", peer.package]
        made = subprocess.run(pip, capture_output=True, text=True, timeout=_INSTALLED_WITHIN_S, check=False)
        if made.returncode:
            print(f"{peer.name} can't be installed: {made.stderr.strip().splitlines()[-1:]}", file=sys.stderr)


def program(peer: Peer, folder: Path | None) -> str | None:
    """Return where the peer's program is; None: nowhere."""
    own = folder / peer.name / "bin" / peer.command[0] if folder is not None else None
    return str(own) if own is not None and own.exists() else shutil.which(peer.command[0])


@contextmanager
def server(folder: Path) -> Iterator[tuple[int, Path]]:
    """Run the stand-in server; returns its port, and the file of its notes."""
    folder.mkdir(parents=True, exist_ok=True)
    port, notes = folder / "port", folder / "notes"
    command = [sys.executable, "-m", "benchmarks.streaming.standin_server", str(port)]
    process = subprocess.Popen(command, env={**os.environ, NOTES: str(notes)})
    try:
        while not port.exists() or not port.read_text():
            if process.poll() is not None:
                raise RuntimeError("the stand-in server has ended")
            time.sleep(0.02)
        yield int(port.read_text()), notes
    finally:
        process.terminate()
        process.wait()


def measure(peer: Peer, path: str, folder: Path, port: int, notes: Path) -> Figures:
    """Return what an answer of 1,000 tokens at 100 a second costs the peer. Raises TimeoutError with its screen."""
    folder.mkdir(parents=True, exist_ok=True)
    env = {**_environment(folder), **peer.configure(folder, port)}
    with Recording([path, *peer.command[1:]], env) as recording:
        recording.wait_for(peer.ready)
        time.sleep(3.0)
        one = Session(recording, notes, is_app=False, enter=peer.enter)
        short = one.ask(20, 100)
        hundred = one.ask(1000, 100)
        figures = {
            "CPU s per 1,000 at 100 tok/s": hundred.cpu_s,
            "bytes a token at 100 tok/s": hundred.bytes / 1000,
            "longest gap at 100 tok/s, ms": hundred.gap,
            "Enter to the engine, ms": (short.note.came - short.asked) * 1000,
            "first token to the screen, ms": (short.first - short.note.first) * 1000,
        }
        if peer.shows_keys:
            echoes = one.ask(450, 100, keys=20).echoes
            figures["key echo streaming p50, ms"] = statistics.median(echoes)
            figures["key echo streaming p95, ms"] = p95(echoes)
        unpaced = one.ask(3000, 0)
        return {**figures, "last token of 3,000, ms": (unpaced.last - unpaced.note.last) * 1000}


def _environment(home: Path) -> Mapping[str, str]:
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
