"""A model whose files, or whose adapter's files, are replaced under its living engine: no answer is of earlier ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from tests.torture.campaign import Campaign, EngineKind
from tests.torture.leftovers import files_left
from tests.torture.worker import MARKER
from vlmtui.paths import bundled

_END_S = 600.0
_WEIGHTS, _ADAPTER = "model.safetensors", "adapter_model.safetensors"
_REFUSED = "have changed since it was loaded"


def in_place(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def renamed(path: Path, content: bytes) -> None:
    fresh = path.with_name(".fresh")
    fresh.write_bytes(content)
    fresh.replace(path)


def with_the_old_times(path: Path, content: bytes) -> None:
    times = path.stat()
    renamed(path, content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def linked(path: Path, content: bytes) -> None:
    blob = path.parents[1] / f"blob-{len(list(path.parents[1].glob('blob-*')))}"
    blob.write_bytes(content)
    path.unlink()
    path.symlink_to(blob)


WAYS: tuple[Callable[[Path, bytes], None], ...] = (in_place, renamed, with_the_old_times, linked)


class Replacement:
    """Questions to one worker, and between them a replaced file, the same file again, or a killed worker.

    The scripted engine says the version of the file that it has loaded; the bundled model in vLLM answers in another
    way with other weights, and with another adapter.
    """

    def __init__(self, folder: Path, random: Random, engine: EngineKind) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.random = random
        self.campaign = Campaign(folder, seed=random.randrange(2**32), engine=engine)
        self.killed = 0
        self._is_real = engine == "vllm"
        self._model, self._lora = folder / "model", folder / "lora"
        shutil.copytree(bundled("shapes"), self._model)
        shutil.copytree(bundled("shapes") / "adapters" / "boxes", self._lora)
        self._number = 0
        self._versions = {"weights": 0, "adapter": 0}

    def play(self) -> list[str]:
        """Return the faults; each wrong answer is one."""
        found: list[str] = []
        self._replace("weights", in_place)
        for step in range(6 if self._is_real else 10):
            way = self.random.choice(WAYS)
            what = self.random.choice(("weights", "adapter", "adapter") if self._is_real else ("weights",))
            if step and self.random.random() < 0.8:
                self._replace(what, way)
            if step and self.random.random() < 0.2:
                self.killed += 1
                self.campaign.kill_worker("server")
            found += [f"{what} replaced {way.__name__}: {text}" for text in self._wrong_answers()]
        if not self._is_real:
            found += self._wrong_with_another_client()
        self._vlmtui("stop", "--all")
        return found + [f"left: {path}" for path in files_left(self.campaign.paths, self.folder / "tmp", at_rest=True)]

    def _replace(self, what: str, way: Callable[[Path, bytes], None]) -> None:
        self._versions[what] += 1
        if not self._is_real:
            way_on_first = in_place if not (self._model / MARKER).exists() else way
            way_on_first(self._model / MARKER, json.dumps({"version": self._versions[what]}).encode())
            return
        path = self._model / _WEIGHTS if what == "weights" else self._lora / _ADAPTER
        source = bundled("shapes") / _WEIGHTS if what == "weights" else bundled("shapes") / "adapters/boxes" / _ADAPTER
        is_zero = (self._versions[what] % 2 == 0) is (what == "weights")
        way(path, zeros_like(source) if is_zero else source.read_bytes())

    def _wrong_answers(self) -> Iterator[str]:
        """Ask once, or in a batch, and yield what is wrong."""
        expected = self._expected()
        if self._is_real or self.random.random() < 0.7:
            ran = self._vlmtui("ask", *self._options(), self._question(3))
            answers = [ran.stdout.strip()]
        else:
            output = self.folder / "out.jsonl"
            picture = str(bundled("samples") / "circle.png")
            options = (*self._options(), "-o", str(output), "--image", picture, "--prompt", self._question(3))
            ran = self._vlmtui("batch", *options, *self.random.choice(((), ("--reload",))))
            if ran.returncode and _REFUSED in ran.stderr and "--reload" in ran.stderr:
                return
            answers = [json.loads(line).get("answer", "") for line in output.read_text().splitlines()]
        if ran.returncode:
            yield f"it fails: {ran.stderr[-300:]}"
        for answer in answers:
            if (said := self._said(answer)) != expected:
                yield f"wrong answer: {said}, not {expected} ({answer[:60]!r})"

    def _wrong_with_another_client(self) -> Iterator[str]:
        """Replace the file while another client's answer runs: that answer ends as it began, ours is refused."""
        before = self._expected()
        command, environment = (
            self.campaign.command("ask", *self._options(), self._question(150)),
            self.campaign.environment(),
        )
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            first = other.stdout.read(3)
            self._replace("weights", self.random.choice(WAYS))
            ran = self._vlmtui("ask", *self._options(), self._question(3))
            rest = other.stdout.read()
        if ran.returncode == 0 and self._said(ran.stdout) != self._expected():
            yield f"wrong answer beside another client: {ran.stdout[-60:]!r}"
        if ran.returncode and _REFUSED not in ran.stderr:
            yield f"it fails beside another client: {ran.stderr[-300:]}"
        if other.returncode or self._said(first + rest) != before:
            yield f"another client's answer is cut off or wrong: {(first + rest)[-60:]!r}"

    # -- the engine's versions

    def _expected(self) -> str:
        if not self._is_real:
            return f"version-{self._versions['weights']}"
        if self._versions["weights"] % 2 == 0:
            return "nonsense"
        return "sentence" if self._versions["adapter"] % 2 else "box"

    def _said(self, answer: str) -> str:
        if not self._is_real:
            return answer.strip().rpartition(" ")[2]
        return "box" if "<box>" in answer else "sentence" if "red circle" in answer else "nonsense"

    def _question(self, words: int) -> str:
        self._number += 1
        return "Locate the red circle." if self._is_real else f"say {words} k{self._number}"

    # -- commands

    def _options(self) -> tuple[str, ...]:
        own = ("--adapter", str(self._lora), "--max-tokens", "24", "--image", str(bundled("samples") / "circle.png"))
        return ("--model", str(self._model), "--keep-alive", "600s", *(own if self._is_real else ()))

    def _vlmtui(self, *words: str) -> subprocess.CompletedProcess[str]:
        command, environment = self.campaign.command(*words), self.campaign.environment()
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_END_S, check=False)


def zeros_like(path: Path) -> bytes:
    """Return a safetensors file with the same tensors, all zero."""
    content = path.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    return content[:header] + bytes(len(content) - header)
