"""The folder of a worker and its files."""

from __future__ import annotations

import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from vlmtui.domain.engine import LoadSpec
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import SOCKET_FOLDER_MAX, Endpoint, WorkerRecord, make_socket_folder


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


def test_a_long_path_and_a_file_system_without_sockets_get_a_folder_that_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep, none = paths_with_runtime(tmp_path / ("x" * 120)), paths_with_runtime(tmp_path / "none")
    made = [make_socket_folder(deep.runtime)]
    with monkeypatch.context() as patch:
        patch.setattr("vlmtui.protocol.endpoint.SOCKET_FOLDER_MAX", 0)  # as if binding failed
        made.append(make_socket_folder(none.runtime))
    for paths, folder in zip((deep, none), made, strict=True):
        endpoint = Endpoint.of(paths, spec("a" * 100))
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {endpoint.socket.parent, endpoint.home.parent, make_socket_folder(paths.runtime)} == {folder}
        assert endpoint.record.parent == paths.runtime, "the record stays where the next login looks"
        assert len(os.fsencode(endpoint.socket)) <= 100
        (folder / "x.sock").touch()
        assert [one.worker_id for one in Endpoint.all(paths)] == ["x"]
        shutil.rmtree(folder)  # as a restart does with /tmp
        assert Endpoint.all(paths) == []
        Path(os.path.realpath(folder.parent), folder.name).write_text("another's")
        assert Endpoint.of(paths, spec()).socket.parent == paths.runtime
        folder.unlink()
    shutil.rmtree(again := make_socket_folder(deep.runtime))
    assert again != made[0]


def test_all_who_start_at_once_have_one_folder(tmp_path: Path) -> None:
    runtime = tmp_path / ("x" * 120)
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(lambda _: make_socket_folder(runtime), range(8)))
    assert len(folders) == 1
    shutil.rmtree(folders.pop())


def test_a_folder_that_holds_sockets_has_them(tmp_path: Path) -> None:
    runtime = Path(tempfile.mkdtemp(dir="/tmp", prefix="v-")) / "run"
    assert len(os.fsencode(runtime)) < SOCKET_FOLDER_MAX
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: make_socket_folder(runtime), range(8))) == {runtime}
    assert list(runtime.iterdir()) == []
    shutil.rmtree(runtime.parent)


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
