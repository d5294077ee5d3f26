"""The real engine, started once and shared by every test that needs it."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import slow_tests
from tests.support.hosts import patient_host
from vlmtui.domain.engine import EngineReady
from vlmtui.engine.local.client import WorkerClient
from vlmtui.engine.machine import Machine
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import DEFAULT_MODEL, Model, resolve

# A stall of a busy machine is not a failure.
settings.register_profile("vlmtui", deadline=None)
settings.register_profile("fast", deadline=None, max_examples=10)  # for `make test-fast`: --hypothesis-profile=fast
settings.load_profile("vlmtui")

# A shell makes its background jobs ignore these signals; the tested processes would inherit that.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

_LONG = ("zoo", "torture")
"""Folders with few tests that take minutes."""
_COST = "processor_s"
"""The name of a test report's property with the test's processor time in seconds."""
_BEGUN_AT = pytest.StashKey[float]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _mark_slow(items)
    _group_engines(items)


def _mark_slow(items: list[pytest.Item]) -> None:
    """Mark the tests in `slow.txt`, which `make slow-tests` writes."""
    listed = set(slow_tests.LISTED.read_text("utf-8").splitlines())
    for item in items:
        if item.nodeid.partition("[")[0] in listed:
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[_BEGUN_AT] = _processor_s()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        item.user_properties.append((_COST, _processor_s() - item.stash[_BEGUN_AT]))


def _processor_s() -> float:
    """Return the processor time of this process and its ended children, in seconds."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _costs(reporter: pytest.TerminalReporter) -> dict[str, float]:
    reports = [one for kind in reporter.stats.values() for one in kind if isinstance(one, pytest.TestReport)]
    return {one.nodeid: float(str(dict(one.user_properties)[_COST])) for one in reports if one.when == "teardown"}


def _group_engines(items: list[pytest.Item]) -> None:
    """Keep tests that load engines from running at the same time when pytest uses several processes (`--dist
    loadgroup`). Tests with the bundled model share one process, which loads it once; long tests share another, begun
    first. With a GPU all share one process: two engines would not fit into its memory."""
    alone = bool(Machine.measure().gpus)
    for item in items:
        is_long = any(part in item.path.parts for part in _LONG)
        if is_long or item.get_closest_marker("engine"):
            item.add_marker(pytest.mark.xdist_group("long" if is_long and not alone else "engine"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take the collected tests and imported modules out of the garbage collector's sight (`gc.freeze`), which otherwise
    scans them for each app that a test starts. Raise an error for versions of pytest and xdist that lose the groups."""
    grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
    if getattr(session.config.option, "loadgroup", False) and not all("@" in item.nodeid for item in grouped):
        raise pytest.UsageError("This xdist does not group tests with this pytest: each process would load an engine.")
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--list-failed", type=Path, metavar="FILE", help="write the ids of what failed, a line each")
    parser.addoption(
        "--costs", type=Path, metavar="FILE", help="write the seconds of processor time that each test took"
    )
    parser.addoption("--cost-limit", type=float, metavar="S", help="fail if a test takes more processor time")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the run, and name the tests, if tests cost too much for `make test-fast`. Tests in KEPT may."""
    limit: float | None = session.config.getoption("--cost-limit")
    reporter: pytest.TerminalReporter | None = session.config.pluginmanager.get_plugin("terminalreporter")
    if limit is None or reporter is None or hasattr(session.config, "workerinput"):
        return
    kept = slow_tests.KEPT
    costs = {name: s for name, s in _costs(reporter).items() if s > limit and not name.startswith(kept)}
    for name, seconds in costs.items():
        reporter.write_line(f"\n{name} took {seconds:.1f} s of processor time: make it cheaper, or `make slow-tests`.")
    if costs and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Write the failed tests for `tools/run_tests.py`, and the cost of each test for `tools/slow_tests.py`. xdist
    appends `@GROUP` to the ids of grouped tests."""
    costs: Path | None = config.getoption("--costs")
    if costs is not None:
        costs.write_text(json.dumps(_costs(terminalreporter)), "utf-8")
    listed: Path | None = config.getoption("--list-failed")
    if listed is not None:
        reports = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
        ids = {re.sub(r"@\w+$", "", report.nodeid) for report in reports}
        listed.write_text("".join(f"{one}\n" for one in sorted(ids)), "utf-8")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A temporary folder with a path short enough for Unix sockets; that of `tmp_path` often is too long."""
    with tempfile.TemporaryDirectory(prefix="vlmtui-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def shapes() -> Model:
    return resolve(Registry.bundled(), DEFAULT_MODEL)


@pytest.fixture(scope="session")
def engine_paths() -> Iterator[Paths]:
    """The folders of the shared worker."""
    with tempfile.TemporaryDirectory(prefix="vlmtui-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # its private files must be private by their own modes
        yield Paths.below(Path(folder))


@pytest.fixture(scope="session")
def loaded_worker(engine_paths: Paths, shapes: Model) -> Iterator[Paths]:
    """A worker that has loaded the bundled model; ends with the test session. Returns its folders."""

    async def load() -> None:
        before = os.umask(0)  # even without a umask, the worker must not be open to other users
        try:
            engine = await patient_host(engine_paths).open(shapes.spec, client="tests", keep_alive_s=None)
        finally:
            os.umask(before)
        events = [event async for event in engine.load()]
        assert isinstance(events[-1], EngineReady), events[-1]
        await engine.close()

    async def end() -> None:
        host = patient_host(engine_paths)
        for worker in await host.find_all():
            await host.stop(worker.endpoint)

    asyncio.run(load())
    yield engine_paths
    asyncio.run(end())


@pytest.fixture
async def engine(loaded_worker: Paths, shapes: Model) -> AsyncIterator[WorkerClient]:
    """A new connection to the shared worker."""
    client = await patient_host(loaded_worker).open(shapes.spec, client="tests", keep_alive_s=None)
    assert client.attached
    yield client
    await client.close()
