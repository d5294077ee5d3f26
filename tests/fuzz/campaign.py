"""Feed one reader, and tell what came of it."""

from __future__ import annotations

import resource
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.mutations import mutated
from vlmtui.errors import VlmtuiError

SLOWEST_S = 20.0
"""No file may take more processor time; the pictures among them may have 200 million pixels. How long a busy machine or
its disk take says nothing of a reader; one that never ends is stopped by the campaign."""
GROWTH_MAX_MIB = 4_000
"""Nor more memory."""


class Reader(NamedTuple):
    """A reader. `read` gets an empty folder and the data, and raises VlmtuiError or nothing."""

    name: str
    seeds: Callable[[Path], Sequence[bytes]]
    """Real data, made in an empty folder."""
    read: Callable[[Path, bytes], object]


class FuzzResult(NamedTuple):
    """The results of a reader."""

    name: str
    examples: int
    refused: int
    """The number that ended in a VlmtuiError."""
    seconds: float
    slowest_s: float
    growth_mib: int
    finding: str
    """The error that must not be, with its traceback; empty: none."""


class TooCostly(Exception):
    """A file took more time or memory than any may."""


def hunt(reader: Reader, *, examples: int, number: int = 1, keep: Path | None = None) -> FuzzResult:
    """Feed the reader with `examples` mutated files, the same ones for the same `number`. The smallest data that made
    it fail is written to the folder `keep`."""
    count = refused = 0
    slowest = 0.0
    failing = b""
    began, before = time.perf_counter(), _peak_mib()

    def one(data: bytes) -> None:
        nonlocal count, refused, slowest, failing
        count += 1
        failing = data
        start = _processor_s()
        with tempfile.TemporaryDirectory(prefix="vlmtui-fuzz-") as folder:
            try:
                reader.read(Path(folder), data)
            except VlmtuiError:
                refused += 1
        took = _processor_s() - start
        slowest = max(slowest, took)
        if took > SLOWEST_S or _peak_mib() - before > GROWTH_MAX_MIB:
            raise TooCostly(f"{took:.1f} s, {_peak_mib() - before} MiB")

    with tempfile.TemporaryDirectory(prefix="vlmtui-fuzz-") as folder:
        seeds = reader.seeds(Path(folder))
    finding = ""
    try:
        _run(one, seeds, examples, number)
    except Exception as error:  # whatever a reader lets out is what is looked for
        finding = "".join(traceback.format_exception(error)[-30:])
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / reader.name.replace(" ", "-")).write_bytes(failing)
    seconds = time.perf_counter() - began
    return FuzzResult(reader.name, count, refused, seconds, slowest, _peak_mib() - before, finding)


def _run(one: Callable[[bytes], None], seeds: Sequence[bytes], examples: int, number: int) -> None:
    phases = (Phase.generate, Phase.shrink)
    options = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    test = given(mutated(seeds))(one)
    seed(number)(options(test))()


def _processor_s() -> float:
    """Return the time that processors have worked for this process, and for those that it started and that ended."""
    started = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + started.ru_utime + started.ru_stime


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
