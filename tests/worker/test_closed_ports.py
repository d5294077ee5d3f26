"""The ports on which vLLM's processes listen, and the users that may connect."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.support.other_user import needs_root, other_user
from vlmtui.worker.backends.vllm.engine_args import SOCKET_FOLDER, environment, has_no_peers
from vlmtui.worker.backends.vllm.worker_extension import CLOSE_LISTENERS, WorkerExtension, bind_elsewhere, drop_all


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


def connects(listener: socket.socket) -> bool:
    """Return whether a connection is accepted. On one machine that is decided before `connect` returns."""
    with socket.socket() as stranger:
        stranger.settimeout(1.0)
        try:
            stranger.connect(listener.getsockname())
        except (TimeoutError, ConnectionRefusedError):
            return False
    return True


linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="this is Linux's way")


@linux_only
@pytest.mark.parametrize("way", [bind_elsewhere, drop_all])
def test_each_way_closes_a_port(listener: socket.socket, way: Callable[[socket.socket], None]) -> None:
    try:
        way(listener)
    except OSError as error:
        pytest.skip(f"this machine does not allow it: {error}")
    assert not connects(listener)


@needs_root
def test_an_ordinary_user_closes_a_port(listener: socket.socket) -> None:
    """Root may do more than most who run an engine."""
    if len(socket.if_nameindex()) < 2:
        pytest.skip("there is no second interface")

    def close(said: BinaryIO) -> None:
        bind_elsewhere(listener)
        said.write(b"closed")

    with other_user(close) as said:
        assert said.read() == b"closed"
    assert not connects(listener)


@linux_only
def test_a_closed_port_refuses_new_connections_and_keeps_old_ones(listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()) as friend:
        served, _ = listener.accept()
        assert connects(listener)
        assert getattr(WorkerExtension(), CLOSE_LISTENERS)() >= 1
        assert not connects(listener)
        with served, socket.create_server(("127.0.0.1", 0)) as later:
            served.sendall(b"still here")
            assert friend.recv(100) == b"still here"
            assert connects(later), "it is one socket's affair"


@pytest.mark.parametrize(
    ("arguments", "alone", "local"),
    [
        ({}, True, True),
        ({"tensor_parallel_size": 1, "data_parallel_size": None}, True, True),
        ({"tensor_parallel_size": 2}, False, True),
        ({"pipeline_parallel_size": 4}, False, True),
        ({"kv_transfer_config": {"kv_connector": "NixlConnector"}}, False, True),
        ({"nnodes": 2}, False, False),
        ({"data_parallel_address": "10.0.0.1"}, False, False),
        ({"distributed_executor_backend": "ray"}, False, False),
    ],
)
def test_ports_are_closed_and_loopback_is_taken_only_where_nobody_else_computes(
    arguments: dict[str, object], alone: bool, local: bool
) -> None:
    assert has_no_peers(arguments) is alone
    given = environment(arguments)
    assert given["VLLM_RPC_BASE_PATH"] == SOCKET_FOLDER
    assert (given.get("VLLM_HOST_IP") == "127.0.0.1") is local
    assert ("GLOO_SOCKET_IFNAME" in given) is local
    assert given["TORCHINDUCTOR_CACHE_DIR"].startswith(str(Path.home()))


def test_torch_compiles_into_vllms_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CACHE_ROOT", "/elsewhere")
    assert environment({})["TORCHINDUCTOR_CACHE_DIR"] == "/elsewhere/torchinductor"
