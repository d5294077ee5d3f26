"""Faults while an engine is installed, on a real small disk and with a real package server."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from tests.unit.engines.light import INSTALLING, environment, has_uv, install, light_variant, make_wheels
from vlmtui.engines.installed import Engines
from vlmtui.paths import Paths

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def _needs_uv(tmp_path: Path) -> None:
    if not has_uv(tmp_path):
        pytest.skip("uv is not installed here")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 20 MB below `app`."""
    disk = tmp_path / "app"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20M", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def engines_of(root: Path) -> Engines:
    return Engines(Paths.below(root / "app"))


def assert_nothing_is_half_made(root: Path) -> None:
    """Assert that no engine is usable, one is incomplete, and no process works on it."""
    assert engines_of(root).all() == []
    assert engines_of(root).incomplete() == [light_variant(root).name]
    assert [one for one in psutil.process_iter() if _is_in(root, one)] == []


def _is_in(root: Path, process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and any(str(root) in word for word in process.cmdline())
    except psutil.Error:
        return False


def assert_it_installs(root: Path, **extra: str) -> None:
    again = install(root, extra=extra)
    assert again.stdout.strip() == light_variant(root).name, again.stderr
    [record] = engines_of(root).all()
    assert record.packages["lightpkg"] == "2.5"


def test_a_disk_that_fills_is_reported_and_the_install_can_continue(tmp_path: Path, small_disk: Path) -> None:
    make_wheels(tmp_path, padding=12_000_000)
    cache = {"UV_CACHE_DIR": str(small_disk / "cache")}
    failed = install(tmp_path, extra=cache)
    assert failed.returncode == 1
    assert "No space left on device" in failed.stderr, failed.stderr
    assert_nothing_is_half_made(tmp_path)
    subprocess.run(["mount", "-o", "remount,size=200M", str(small_disk)], check=True)
    assert_it_installs(tmp_path, **cache)


@pytest.mark.parametrize("tag", ["cp27-cp27mu-manylinux1_x86_64", "cp311-cp311-win_amd64"])
def test_wheels_for_another_python_or_machine_are_reported(tmp_path: Path, tag: str) -> None:
    make_wheels(tmp_path, tag=tag)
    failed = install(tmp_path)
    assert failed.returncode == 1
    assert "No solution found" in failed.stderr, failed.stderr
    assert_nothing_is_half_made(tmp_path)


class Index(SimpleHTTPRequestHandler):
    """A package index whose files may be cut off."""

    cuts = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        if self.path.endswith(".whl") and "lightpkg" in self.path and type(self).cuts:
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            self.wfile.write(b"PK")
            return
        super().do_GET()


@pytest.mark.timeout(300)
def test_a_lost_network_is_reported_and_the_install_can_continue(tmp_path: Path) -> None:
    make_wheels(tmp_path)
    for wheel in (tmp_path / "wheels").iterdir():
        page = tmp_path / "index" / wheel.name.partition("-")[0] / "index.html"
        page.parent.mkdir(parents=True)
        page.write_text(f'<a href="/wheels/{wheel.name}">{wheel.name}</a>')
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Index, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    given = {
        "PIP_NO_INDEX": "", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": f"http://127.0.0.1:{server.server_port}/index",
        "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_HTTP_RETRIES": "0", "no_proxy": "127.0.0.1",
    }  # fmt: skip
    try:
        Index.cuts = True
        failed = install(tmp_path, extra=given)
        assert failed.returncode == 1
        assert "VlmtuiError: uv failed with exit code" in failed.stderr, failed.stderr
        assert_nothing_is_half_made(tmp_path)
        Index.cuts = False
        assert_it_installs(tmp_path, **given)
    finally:
        server.shutdown()
        server.server_close()


def test_two_apps_that_install_at_once_share_the_engine(tmp_path: Path) -> None:
    make_wheels(tmp_path, padding=4_000_000)
    command = [sys.executable, "-c", INSTALLING, str(tmp_path), ""]
    root = Path(__file__).parents[3]
    both = [
        subprocess.Popen(command, env=environment(tmp_path), cwd=root, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [one.communicate()[0].splitlines() for one in both]
    assert {lines[-1] for lines in said} == {light_variant(tmp_path).name}
    assert [one.returncode for one in both] == [0, 0]
    assert sum("Waiting for another installation to finish." in lines for lines in said) == 1
