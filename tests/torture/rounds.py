"""The rounds of a campaign, of all sorts, and the table of what they came to."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.torture.campaign import BLOWS, SAYING, Campaign, EngineKind
from tests.torture.deeds import DEEDS as OWN_DEEDS
from tests.torture.long_messages import LongMessage
from tests.torture.nursery import Nursery
from tests.torture.replacements import Replacement
from tests.torture.scenes import SCENES, Scene
from tests.torture.starts import WAYS, Starts, talking_server
from tests.torture.store_deeds import STORE_DEEDS

BLOWS_BY_NAME = {str(blow): blow for blow in BLOWS}
_RESTING_MAX = 12
DEEDS = {**OWN_DEEDS, **STORE_DEEDS}
REPLACED, LONG = "replaced", "long message"
KINDS = (*BLOWS_BY_NAME, *DEEDS, *SCENES, "start", REPLACED, LONG)
"""A chat with a blow in it, commands that are killed, what else can be done in the app, text typed at its start,
replaced models, and long messages."""


def kinds_with(engine: EngineKind) -> tuple[str, ...]:
    """The kinds of rounds that an engine is for. Commands and scenes have their own; Transformers has no core."""
    if engine in ("scripted", "vllm"):
        return KINDS
    return tuple(kind for kind in BLOWS_BY_NAME if kind != "core" or engine != "transformers")


class Round(NamedTuple):
    """The result of a round."""

    number: int
    kind: str
    wrong: list[str]
    kills: int
    seconds: float


class Rounds:
    """All of a campaign, below one folder with a short name."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        engine: EngineKind = "scripted",
        kept_after_s: float = 3.0,
        kinds: Sequence[str] = (),
    ) -> None:
        """`kinds`: all those that need this engine, if empty."""
        keep_alive_s = 3.0 if engine in SAYING else 60.0
        (folder / "c").mkdir()
        self.campaign = Campaign(
            folder / "c", seed=seed, engine=engine, keep_alive_s=keep_alive_s, kept_after_s=kept_after_s
        )
        self.played: list[Round] = []
        self._folder = folder
        self._kinds = kinds or kinds_with(engine)
        self._nursery: Nursery
        self._resting: list[tuple[int, str, Scene, list[str]]] = []
        """Scenes whose workers may wait for somebody to come back: a minute, where a model was just loaded."""
        self._random = Random(seed)

    @property
    def losses(self) -> list[str]:
        """All that was wrong, each with its round."""
        return [f"round {one.number} ({one.kind}): {text}" for one in self.played for text in one.wrong]

    def play(self, rounds: int) -> None:
        """Play this many rounds; the first ones have each kind once."""
        with Nursery() as self._nursery:
            self._play(rounds)
        self._look_at_rest(0)
        found = len(self.campaign.losses.found)
        self.campaign.check_processes()
        wrong = [text for _, _, text in self.campaign.losses.found[found:]]
        self.played.append(Round(rounds, "all ended", wrong, 0, 0.0))

    def _play(self, rounds: int) -> None:
        order = list(self._kinds)
        self._random.shuffle(order)
        for number in range(1, rounds + 1):
            kind = order[number - 1] if number <= len(order) else self._random.choice(self._kinds)
            started = time.monotonic()
            wrong, kills = self._round(number, kind)
            self._look_at_rest(_RESTING_MAX)
            self.played.append(Round(number, kind, wrong, kills, time.monotonic() - started))
            print(f"round {number} ({kind}): {'; '.join(wrong) or 'nothing lost, nothing left'}", flush=True)

    def table(self) -> str:
        """Rounds, kills, losses and time, a kind a line."""
        lines = [f"{'kind':<14}{'rounds':>8}{'kills':>8}{'losses':>8}{'seconds':>9}"]
        for kind in (*KINDS, ""):
            mine = [one for one in self.played if kind in ("", one.kind)]
            sums = (sum(one.kills for one in mine), sum(len(one.wrong) for one in mine))
            count = sum(one.kind in KINDS for one in mine)
            took = sum(one.seconds for one in mine)
            lines.append(f"{kind or 'all':<14}{count:>8}{sums[0]:>8}{sums[1]:>8}{took:>9.0f}")
        return "\n".join(lines) + f"\n{self.campaign.demanded} words demanded at the blows of the chat"

    def _look_at_rest(self, may_wait: int) -> None:
        """Look at what scenes left, the oldest first, as far as they have ended, or more than `may_wait` wait."""
        while self._resting and (len(self._resting) > may_wait or not self._resting[0][2].campaign.processes()):
            number, kind, scene, wrong = self._resting.pop(0)
            left = scene.left()
            wrong += left
            if left:
                print(f"round {number} ({kind}), at rest: {'; '.join(left)}", flush=True)
            if not wrong:
                shutil.rmtree(scene.folder)

    def _round(self, number: int, kind: str) -> tuple[list[str], int]:
        """Return the faults, and the number of processes killed."""
        if kind in DEEDS:
            folder = self._folder / f"d{number}"
            deed = DEEDS[kind](folder, self._random, self._nursery, self._folder / f"before-{kind}")
            wrong = deed.play()
            if not wrong:
                shutil.rmtree(folder)
            return wrong, deed.killed
        if kind in SCENES:
            scene = Scene(self._folder / f"s{number}", self._random, number)
            wrong = scene.play(kind)
            self._resting.append((number, kind, scene, wrong))
            return wrong, 1
        if kind == "start":
            folder = self._folder / f"t{number}"
            folder.mkdir()
            wrong = typed_at_starts(folder, self._random)
            if not wrong:
                shutil.rmtree(folder)
            return wrong, 0
        if kind == REPLACED:
            replacement = Replacement(self._folder / f"r{number}", self._random, self.campaign.engine)
            wrong = replacement.play()
            if not wrong:
                shutil.rmtree(replacement.folder)
            return wrong, replacement.killed
        if kind == LONG:
            long = LongMessage(self._folder / f"l{number}", self._random, self.campaign.engine)
            wrong = long.play()
            if not wrong:
                shutil.rmtree(long.folder)
            return wrong, 0
        found = len(self.campaign.losses.found)
        self.campaign.round(number, BLOWS_BY_NAME[kind])
        return [text for _, _, text in self.campaign.losses.found[found:]], int(kind not in ("none", "disk full"))


def typed_at_starts(folder: Path, random: Random) -> list[str]:
    """Type at two starts of an app in `folder`, and return what was lost."""
    with talking_server() as server:
        starts = Starts(folder, random, server)
        for way in ("load", random.choice(WAYS)):
            starts.play(way)
        starts.end()
    return starts.wrong
