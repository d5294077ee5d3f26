"""The folder of a worker and its files."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import VlmtuiError
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import SOCKET_PATH_MAX, Endpoint, WorkerRecord


def paths_with_runtime(runtime: Path) -> Paths:
    return Paths(runtime / "config", runtime / "data", runtime / "state", runtime / "cache", runtime)


@pytest.fixture
def paths() -> Paths:
    return paths_with_runtime(Path("/run/vlmtui"))


def spec(name: str = "Qwen/Qwen2-VL-7B-Instruct", **engine_args: object) -> LoadSpec:
    return LoadSpec(model="m", name=name, engine_args=engine_args)


def test_equal_specs_meet_whatever_the_order_of_their_arguments(paths: Paths) -> None:
    assert Endpoint.of(paths, spec(a=1, b=2)) == Endpoint.of(paths, spec(b=2, a=1))
    assert Endpoint.of(paths, spec(a=1)) != Endpoint.of(paths, spec(a=2))


def test_the_name_contains_the_model(paths: Paths) -> None:
    endpoint = Endpoint.of(paths, spec())
    assert endpoint.worker_id.startswith("qwen-qwen2-vl-7b-instruc-")
    assert endpoint.socket.parent == endpoint.record.parent == paths.runtime
    assert endpoint.log.parent == paths.logs


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "模型", "a" * 300, ".hidden", "x\n\x1b[31m"])
def test_no_name_leads_elsewhere(paths: Paths, name: str) -> None:
    socket = Endpoint.of(paths, spec(name)).socket
    assert socket.parent == paths.runtime
    assert socket.name.removesuffix(".sock").replace("-", "").isalnum()
    assert socket.name.isascii()


@pytest.mark.parametrize("length", range(60, 86))
def test_a_socket_path_is_never_too_long(length: int) -> None:
    runtime = Path("/" + "r" * (length - 1))
    assert len(os.fsencode(Endpoint.of(paths_with_runtime(runtime), spec("a" * 100)).socket)) <= SOCKET_PATH_MAX


def test_a_folder_with_a_long_path_is_reported() -> None:
    with pytest.raises(VlmtuiError, match="too long") as caught:
        Endpoint.of(paths_with_runtime(Path("/" + "r" * 95)), spec())
    assert "VLMTUI_DATA_DIR" in caught.value.hint


def test_a_record_comes_back_as_it_was_and_is_its_owners_alone(tmp_path: Path) -> None:
    paths = Paths.below(tmp_path)
    endpoint = Endpoint.named(paths_with_runtime(tmp_path / "run"), "shapes-01234567")
    record = WorkerRecord(spec=spec(a=[1, {"b": None}]), pid=7, started_at=1.5, log="/log")
    assert endpoint.read_record() is None
    endpoint.write_record(record)
    assert endpoint.read_record() == record
    assert endpoint.record.stat().st_mode & 0o777 == 0o600
    assert Endpoint.all(paths_with_runtime(tmp_path / "run")) == [endpoint]
    assert [file.name for file in endpoint.record.parent.iterdir()] == ["shapes-01234567.json"]
    endpoint.remove()
    assert Endpoint.all(paths) == []


@pytest.mark.parametrize("content", [b"", b"{", b'{"pid": "x"}', b"\xff\x00"])
def test_a_damaged_record_is_none(tmp_path: Path, content: bytes) -> None:
    endpoint = Endpoint.named(paths_with_runtime(tmp_path), "x")
    endpoint.record.write_bytes(content)
    assert endpoint.read_record() is None


@pytest.mark.parametrize(
    "other", [{"backend": "echo"}, {"pinned": "0.23.0"}, {"code_revision": "0" * 40}, {"code_sha256": "0" * 64}]
)
def test_every_field_of_a_spec_names_another_worker(paths: Paths, other: dict[str, str]) -> None:
    spec = LoadSpec(model="a", name="b", num_frames=3)
    assert Endpoint.of(paths, spec) == Endpoint.of(paths, LoadSpec(model="a", name="b", num_frames=3))
    assert Endpoint.of(paths, msgspec.structs.replace(spec, **other)).worker_id != Endpoint.of(paths, spec).worker_id
