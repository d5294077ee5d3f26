"""A model that is not here is not loaded without a network."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Never

import pytest

from tests.support.hosts import patient_host
from vlmtui.domain.engine import LoadSpec
from vlmtui.engine.local.hub import hub_error
from vlmtui.engine.local.launcher import Launcher
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths

SPEC = LoadSpec(model="owner/model", name="owner/model")


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> socket.socket:
    """A hub at which nothing listens yet, and an empty cache."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    found = socket.socket()
    found.bind(("127.0.0.1", 0))
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{found.getsockname()[1]}")
    return found


def test_only_a_download_asks_the_hub(closed: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = hub_error(SPEC)
    assert error is not None and error.kind is ErrorKind.NO_NETWORK
    assert error.message == "owner/model is not on this machine, and 127.0.0.1 can't be reached."
    assert hub_error(LoadSpec(model=str(tmp_path), name="mine")) is None
    assert hub_error(LoadSpec(model="owner/model", name="it", backend="remote")) is None
    with monkeypatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        offline = hub_error(SPEC)
        assert offline is not None and "HF_HUB_OFFLINE forbids downloads" in offline.message
    closed.listen()
    assert hub_error(SPEC) is None
    closed.close()
    (tmp_path / "hub" / "models--owner--model" / "snapshots" / "abc").mkdir(parents=True)
    assert hub_error(SPEC) is None


def test_a_proxy_stands_for_the_hub(closed: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    port = closed.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
    assert hub_error(SPEC) is not None
    closed.listen()
    assert hub_error(SPEC) is None


def no_program(spec: LoadSpec) -> Never:
    raise AssertionError("a worker is about to be started")


async def test_no_worker_is_started_without_a_network(closed: socket.socket, short_path: Path) -> None:
    host = patient_host(Paths.below(short_path), Launcher(no_program))
    with pytest.raises(VlmtuiError, match="is not on this machine"):
        await host.open(SPEC, client="app", keep_alive_s=None)
