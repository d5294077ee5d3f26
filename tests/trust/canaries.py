"""Canaries: things that a hostile input names, and that must stay untouched."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from vlmtui.domain.engine import REMOTE_BACKEND, LoadSpec
from vlmtui.registry.engine_arguments import refused_argument

WORD = "canary"
"""In the name of everything that must not be used."""
SECRET = "s3cr3t-of-the-canary"
"""In the environment variable and in the file."""
VARIABLE = "VLMTUI_CANARY_KEY"
MODULE = "canary_module"
_NAMES = ("model", "name", "family", "revision", "backend")
"""The fields of a spec that a stored conversation may set, each a name."""


class Canaries:
    """The canaries of one campaign, below `folder`, and what happened to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key_file = folder / "canary-key"
        self.model = folder / "canary-model"
        self.ran = folder / "canary-ran"
        self.touched: list[str] = []
        self.launched: list[LoadSpec] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def prepare(self) -> None:
        """Make the files."""
        self.key_file.write_text(f"{SECRET}\nmore\n")
        self.model.mkdir()
        (self.model / "config.json").write_text('{"architectures": ["Qwen2VLForConditionalGeneration"]}')
        code = f"open({str(self.ran)!r}, 'a').write('ran')\n"
        for place in (self.folder, self.model):
            (place / f"{MODULE}.py").write_text(code)
        os.environ[VARIABLE] = SECRET

    def _accept(self) -> None:
        while True:
            try:
                self._server.accept()[0].close()
            except OSError:
                return
            self.touched.append("the address was connected to")

    def close(self) -> None:
        self._server.close()
        os.environ.pop(VARIABLE, None)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take note of an audit event of this process that touches a canary."""
        words = [str(one) for one in arguments[:3]]
        if event == "import" and words[0].startswith(MODULE):
            self.touched.append(f"{words[0]} was imported")
        elif event == "open" and words[0] in (str(self.key_file), str(self.model / f"{MODULE}.py")):
            self.touched.append(f"{words[0]} was opened")
        elif event == "socket.connect" and f", {self.port})" in words[1]:
            self.touched.append("the address was connected to")
        elif event in ("subprocess.Popen", "os.exec", "os.posix_spawn") and WORD in " ".join(words):
            self.touched.append(f"a process was started: {' '.join(words)[:300]}")

    def judge(self, spec: LoadSpec, command: list[str], environment: Mapping[str, str]) -> None:
        """Note a spec that reached the start of its worker, and whatever is wrong with it."""
        self.launched.append(spec)
        decided = {name: value for name, value in msgspec.to_builtins(spec).items() if name not in _NAMES}
        if spec.backend == REMOTE_BACKEND:  # the name under which a server serves it
            decided["engine_args"].pop("model", None)
        told = msgspec.json.encode([decided, command, dict(environment)]).decode()
        found = [word for word in (WORD, SECRET, f":{self.port}") if word in told]
        if found:
            self.touched.append(f"an engine was given {found}: {told[:500]}")
        if spec.trust_remote_code or "trust_remote_code" in spec.engine_args:
            self.touched.append("an engine may run foreign code")
        if (refused := refused_argument(spec.engine_args, frozenset(spec.typed))) is not None:
            self.touched.append(f"an engine was given `{refused[0]}`")

    def finding(self) -> str:
        """Return what was touched since the last call; empty: nothing."""
        if self.ran.exists():
            self.touched.append("code ran")
            self.ran.unlink()
        found, self.touched = self.touched, []
        return "; ".join(found)


_HEARING: list[Canaries] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    for one in _HEARING:
        one.hear(event, arguments)


@contextmanager
def heard(canaries: Canaries) -> Iterator[None]:
    """Hear this process's audit events. A hook cannot be taken away again: there is one for all campaigns."""
    if _hook not in _HOOKED:
        sys.addaudithook(_hook)
        _HOOKED.append(_hook)
    _HEARING.append(canaries)
    try:
        yield
    finally:
        _HEARING.remove(canaries)


_HOOKED: list[object] = []
