"""A message of megabytes beside short ones of other clients: each of these gets its own answer."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

from tests.torture.campaign import Campaign, EngineKind
from tests.torture.leftovers import files_left
from vlmtui.paths import bundled

_END_S = 600.0
_BYTES_MAX = 12_000_000
_REFUSED = "does not fit in the model's context"
_SEEN = "A red circle in the center."


class LongMessage:
    """One client with a message of up to 12 MB and eight with short ones, all at once. The scripted engine says the
    words that each asks for; the bundled model in vLLM sees a circle, and refuses what is longer than its context."""

    def __init__(self, folder: Path, random: Random, engine: EngineKind) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.random = random
        self.campaign = Campaign(folder, seed=random.randrange(2**32), engine=engine)
        self._is_real = engine == "vllm"

    def play(self) -> list[str]:
        """Return the faults: other clients' requests that fail or are answered wrongly, and files that are left."""
        self._ask("first").communicate(timeout=_END_S)  # loads the model
        size = self.random.randrange(_BYTES_MAX // 10, _BYTES_MAX)
        question = f"{'A' * size} say 3 long"
        with self._ask("-") as long:
            others = {f"k{number}": self._ask(f"k{number}") for number in range(8)}
            told = long.communicate(question, timeout=_END_S)
        found = []
        for name, other in others.items():
            answer, error = other.communicate(timeout=_END_S)
            if answer.strip() != (_SEEN if self._is_real else f"{name}-0 {name}-1 {name}-2"):
                found.append(f"wrong answer beside a message of {size:,} bytes: {answer[:60]!r} {error[-200:]}")
        if not (_REFUSED in told[1] if self._is_real else "long-2" in told[0]):
            found.append(f"a message of {size:,} bytes: {told[0][:60]!r} {told[1][-200:]}")
        self._run("stop", "--all").communicate(timeout=_END_S)
        return found + [f"left: {path}" for path in files_left(self.campaign.paths, self.folder / "tmp", at_rest=True)]

    def _ask(self, name: str) -> subprocess.Popen[str]:
        question = "What is in this image?" if self._is_real else f"say 3 {name}"
        image = ("--image", str(bundled("samples") / "circle.png"))
        return self._run("ask", "--model", "shapes", "--keep-alive", "600s", *image, "-" if name == "-" else question)

    def _run(self, *words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command, environment = self.campaign.command(*words), self.campaign.environment()
        return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
