"""Histories over a failing disk, each from its number alone, and what came of them."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.faults.disk import OK, Disk, Fault
from tests.faults.history import Player, StoppedError
from tests.faults.places import counted, places, stored
from tests.faults.shadow import State, observed, turn_texts
from tests.faults.vfs import watched
from vlmtui.errors import VlmtuiError
from vlmtui.store import newest_changes
from vlmtui.store.opening import FILE, new_database
from vlmtui.store.repairing import MENDABLE, repair_store
from vlmtui.store.store import Store
from vlmtui.store.verifying import verify_store

_STEPS_MAX = 30
_CALLS_MAX = 150
AT_REST = (Fault.BITS, Fault.STALE, Fault.LOG)
"""Damage done to a database that nobody has open."""
_LOG = f"{FILE}-wal"


class HistoryResult(NamedTuple):
    """What came of one history."""

    number: int
    fault: Fault
    acknowledged: int
    """Changes that the store said were stored."""
    refused: int
    struck: int
    """How often something went wrong below SQLite."""
    lost: list[str]
    """What must not be, each in a sentence."""
    is_changed: bool = False
    """Whether damage at rest changed anything that is stored."""
    is_noticed: bool = False
    harmless: str = ""
    """What the damaged bytes belong to, if it was not noticed, and every stored value is as it was."""
    turns: int = 0
    turns_kept: int = 0
    """How many texts a repair brought back."""


def run_history(
    number: int, seed: int = 1, scratch: Path | None = None, *, fault: Fault | None = None
) -> HistoryResult:
    """Play the history of this number. `scratch`: where its folder is made; memory is quickest. `fault`: by default,
    each in turn."""
    random = Random(f"{seed}/{number}")
    fault = fault or list(Fault)[number % len(Fault)]
    with tempfile.TemporaryDirectory(prefix="vlmtui-faults-", dir=scratch) as temporary:
        folder = Path(temporary) / "data"
        folder.mkdir(mode=0o700)
        (folder / FILE).write_bytes(_empty())
        (folder / FILE).chmod(0o600)
        disk = Disk(folder, fault, random.randrange(1, _CALLS_MAX), random)
        with watched(disk), python_writes_to(disk):
            player = _played(folder, disk, random)
        if player is None:  # the machine went off while the store was opened for the first time
            return HistoryResult(number, fault, 0, 0, disk.hits, [])
        if fault is Fault.LOG:
            return _damaged_log(number, _put(disk.crash_state(), Path(temporary) / "after", player), player, random)
        if fault in AT_REST:
            return _damaged_at_rest(number, fault, folder, player, random)
        lost = player.wrong + _after_crash(_put(disk.crash_state(), Path(temporary) / "after", player), player)
        return HistoryResult(number, fault, player.acknowledged, player.refused, disk.hits, lost)


def _played(folder: Path, disk: Disk, random: Random) -> Player | None:
    player = None
    try:
        player = Player(folder, random)
        player.play(random.randrange(3, _STEPS_MAX), lambda: disk.is_dead)
    except (VlmtuiError, StoppedError):
        if player is None:
            return None
    if not disk.is_dead and random.random() < 0.5 and disk.fault not in AT_REST:
        disk.is_dead = True  # in order to the end, or off without closing
    with suppress(VlmtuiError):
        player.store.close()
    return player


@contextmanager
def python_writes_to(disk: Disk) -> Iterator[None]:
    """Let the disk take what the store itself writes to the log again, in the body."""

    def write_again(file: Path) -> None:
        if disk.write(str(file), 0, file.read_bytes())[0] != OK or disk.sync(str(file)) != OK:
            raise OSError(errno.EIO, "the disk fails")

    real, newest_changes.write_again = newest_changes.write_again, write_again
    try:
        yield
    finally:
        newest_changes.write_again = real


def _put(state: dict[str, bytes], folder: Path, player: Player) -> Path:
    """Write what the disk holds to a folder, with the newest mark that may be there."""
    folder.mkdir(mode=0o700)
    if (mark := newest_changes.mark_file(player.folder / FILE)).exists():
        state = {**state, mark.name: mark.read_bytes()}
    for name, content in state.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    return folder


def _damaged_log(number: int, folder: Path, player: Player, random: Random) -> HistoryResult:
    """Flip bits in the log that a killed process left, if it left one, and start again."""
    log = folder / _LOG
    content = bytearray(log.read_bytes()) if log.exists() else bytearray()
    for _ in range(random.choice((1, 1, 2, 8)) if content else 0):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    if content:
        log.write_bytes(content)
    is_noticed = bool(verify_store(folder, folder / "media", folder.parent).findings)
    shutil.copytree(folder, folder.with_name("opened"))
    found = _read(folder.with_name("opened"))
    lost, texts = list(player.wrong), turn_texts(player.shadow.state())
    kept = turn_texts(_repaired(folder, lost))
    return HistoryResult(
        number,
        Fault.LOG,
        player.acknowledged,
        player.refused,
        int(bool(content)),
        lost,
        is_changed=found is None or found not in player.allowed(),
        is_noticed=is_noticed or found is None,
        turns=len(texts),
        turns_kept=len(texts & kept),
    )


def _after_crash(folder: Path, player: Player) -> list[str]:
    """Start again from what the disk held, and compare."""
    findings = verify_store(folder, folder / "media", folder.parent).findings
    lost = [f"the check finds: {one.where} {one.what}" for one in findings]
    try:
        opened = Store.open(folder, busy_s=0.0)
    except VlmtuiError as error:
        return [*lost, f"the store cannot be opened: {error}"]
    if opened.recovered is not None:
        lost.append(f"the database was set aside: {opened.recovered.reason}")
    if observed(opened.store) not in player.allowed():
        lost.append("what was acknowledged is not what is there")
    opened.store.new_conversation(title="goes on")
    opened.store.close()
    return lost


def _damaged_at_rest(number: int, fault: Fault, folder: Path, player: Player, random: Random) -> HistoryResult:
    path, wanted = folder / FILE, player.shadow.state()
    before = path.read_bytes()
    after = _damaged(before, fault, random)
    path.write_bytes(after)
    is_noticed = bool(verify_store(folder, folder / "media", folder.parent).findings)
    lost = list(player.wrong)
    shutil.copytree(folder, folder.with_name("opened"))
    found = _read(folder.with_name("opened"))
    is_noticed = is_noticed or found is None
    is_changed = found != wanted or stored(after) != stored(before)
    repaired = _repaired(folder, lost)
    texts = turn_texts(wanted)
    return HistoryResult(
        number,
        fault,
        player.acknowledged,
        player.refused,
        1,
        lost,
        is_changed=is_changed,
        is_noticed=is_noticed,
        harmless="" if is_noticed or is_changed else places(before, after),
        turns=len(texts),
        turns_kept=len(texts & turn_texts(repaired)),
    )


def _damaged(content: bytes, fault: Fault, random: Random) -> bytes:
    changed = bytearray(content)
    if fault is Fault.BITS:
        for _ in range(random.choice((1, 1, 2, 8))):
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
        return bytes(changed)
    page = random.randrange(len(content) // 4096) * 4096
    other = random.randrange(len(content) // 4096) * 4096
    stale = (_empty()[page : page + 4096], bytes(4096), content[other : other + 4096])
    changed[page : page + 4096] = random.choice(stale).ljust(4096, b"\0")
    return bytes(changed)


def _read(folder: Path) -> State | None:
    """Return what the app would show; None if it says that something is wrong."""
    try:
        opened = Store.open(folder, busy_s=0.0)
    except VlmtuiError:
        return None
    try:
        return None if opened.recovered is not None else observed(opened.store)
    except VlmtuiError:
        return None
    finally:
        opened.store.close()


def _repaired(folder: Path, lost: list[str]) -> State:
    """Check and repair, as a user would, and return what is there afterwards."""
    media = folder / "media"
    try:
        findings = verify_store(folder, media, folder.parent).findings
        if any(one.kind in MENDABLE for one in findings):
            repair_store(folder, findings, busy_s=0.0)
            left = verify_store(folder, media, folder.parent).findings
            lost += [f"after a repair: {one.where} {one.what}" for one in left if one.kind in MENDABLE]
        opened = Store.open(folder, busy_s=0.0)
        try:
            return observed(opened.store)
        finally:
            opened.store.close()
    except VlmtuiError as error:
        lost.append(f"it cannot be repaired: {error} {error.detail}")
        return ()


@cache
def _empty() -> bytes:
    """The content of a new database."""
    with tempfile.TemporaryDirectory() as folder:
        return new_database(Path(folder) / FILE).read_bytes()


def table(results: list[HistoryResult], seconds: float) -> str:
    """What came of the histories, a fault a line."""
    head = f"{'fault':22}{'histories':>10}{'stored':>9}{'refused':>9}{'struck':>8}{'lost':>6}"
    lines = [f"{head}{'changed':>9}{'unnoticed':>11}{'texts kept':>12}"]
    for fault in (*Fault, None):
        mine = [one for one in results if fault in (None, one.fault)]
        at_rest = [one for one in mine if one.fault in AT_REST]
        line = f"{fault or 'all':22}{len(mine):>10,}{sum(one.acknowledged for one in mine):>9,}"
        line += f"{sum(one.refused for one in mine):>9,}{sum(one.struck for one in mine):>8,}"
        line += f"{sum(bool(one.lost) for one in mine):>6,}"
        if at_rest:
            unnoticed = sum(one.is_changed and not one.is_noticed for one in at_rest)
            turns = sum(one.turns for one in at_rest) or 1
            kept = sum(one.turns_kept for one in at_rest) / turns
            line += f"{sum(one.is_changed for one in at_rest):>9,}{unnoticed:>11,}{kept:>12.1%}"
        lines.append(line)
    harmless = counted(one.harmless for one in results if one.harmless)
    return "\n".join([*lines, f"harmless, every value as it was: {harmless or 'none'}", f"{seconds:.0f} s"])
