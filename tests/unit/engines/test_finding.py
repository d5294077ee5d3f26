"""What is found out before an installation: the configuration, a build of PyTorch, the GPU, the engine to use."""

from __future__ import annotations

import functools
import http.server
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from vlmtui.engines import hardware, torch_build
from vlmtui.engines.environment import SetupPhase, SetupState, read_state, write_state
from vlmtui.engines.hardware import Hardware, find_hardware
from vlmtui.engines.indexes import pip_options, uv_variables
from vlmtui.engines.packages import failure
from vlmtui.engines.records import ADDED, ENVIRONMENT, EngineRecord, Engines, choose_engine
from vlmtui.engines.torch_build import find_torch, interpreter_tag, wheel_requirement
from vlmtui.engines.variants import TORCH, TORCH_LOCK, VARIANTS
from vlmtui.errors import ErrorKind
from vlmtui.paths import Paths

PYTHON = Path(sys.executable)
DIGEST = "0" * 64


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A package index with PyTorch's page, as PyTorch's own index writes it."""
    tag, machine = interpreter_tag(PYTHON), os.uname().machine
    name = f"torch-{TORCH}%2Bcpu-{tag}-{tag}-manylinux_2_28_{machine}.whl"
    other = name.replace(tag, "cp39")
    page = tmp_path / "torch" / "index.html"
    page.parent.mkdir()
    page.write_text(f'<a href="/w/{other}#sha256={DIGEST}">x</a>\n<a href="/w/{name}#sha256={DIGEST}">y</a>')
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_index_that_answers_gives_the_wheel_for_this_python(index: str) -> None:
    found = wheel_requirement(index, PYTHON)
    assert found.startswith(f"torch @ {index}/w/torch-{TORCH}%2Bcpu-{interpreter_tag(PYTHON)}-")
    assert found.endswith(f"#sha256={DIGEST}")


def test_an_index_that_does_not_answer_gives_pypis_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_build, "is_available", lambda *arguments: False)
    found = find_torch([], PYTHON, {"TORCH_INDEX": "http://127.0.0.1:1"})
    assert (found.is_cpu, found.lock) == (False, TORCH_LOCK)


HOSTILE = {
    "no HTTP": [b"SSH-2.0-x\r\n"],
    "an endless line": [b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000],
    "a promise that is not kept": [b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"abc"],
    "chunks that are none": [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"zz\r\nabc"],
    "a circle": [b"HTTP/1.1 302 Found\r\nLocation: /torch/\r\nContent-Length: 0\r\n\r\n"],
    "another scheme": [b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n"],
    "one link of 3 MB": [
        b'HTTP/1.1 200 OK\r\n\r\n<a href="torch-' + TORCH.encode() + b"+cpu-" + b"linux" * 600_000 + b'">'
    ],
    "a byte now and then": [b"HTTP/1.1 200 OK\r\n\r\n", *[b"a"] * 100_000],
}


@pytest.mark.parametrize("pieces", HOSTILE.values(), ids=HOSTILE)
def test_an_index_that_says_anything_gives_no_wheel_and_ends(pieces: list[bytes]) -> None:
    gone = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.recv(65_536)
                for piece in pieces:
                    self.request.sendall(piece)
                    if piece == b"a" and gone.wait(0.01):
                        return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert wheel_requirement(f"http://127.0.0.1:{server.server_address[1]}", PYTHON, page_s=0.2) == ""
        finally:
            gone.set()
            server.shutdown()
            thread.join()


def test_what_the_configuration_offers_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_build, "is_available", lambda *arguments: True)
    assert find_torch([], PYTHON, {}).requirement == f"torch=={TORCH}+cpu"


def test_pips_configuration_is_said_to_uv(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://a.example/simple\nextra-index-url =\n  https://b.example\n  file:///c\n"
    )
    given = {"PIP_CONFIG_FILE": str(file), "PIP_FIND_LINKS": "/w /v", "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    said = uv_variables(pip_options(Path(getattr(sys, "_base_executable", sys.executable)), given), given)
    assert said["UV_DEFAULT_INDEX"] == "https://a.example/simple"
    assert said["UV_INDEX"] == "https://b.example file:///c"
    assert said["UV_FIND_LINKS"] == "/w,/v"
    assert uv_variables({}, {})["UV_SYSTEM_CERTS"] == "1"
    assert uv_variables({"cert": "/c.pem"}, {})["SSL_CERT_FILE"] == "/c.pem"


@pytest.mark.parametrize(
    ("told", "variant", "text"),
    [
        ("NVIDIA H100, 580.65.06\nNVIDIA H100, 580.65.06\n", "cuda", "2 × NVIDIA H100, driver 580.65.06"),
        ("NVIDIA A10, 470.82.01\n", "cpu", "NVIDIA A10, driver 470.82.01, too old for CUDA 13, which needs 580"),
        ("No devices were found\n", "cpu", "no NVIDIA GPU"),
    ],
)
def test_a_gpu_is_used_where_its_driver_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, variant: str, text: str
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{told}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = find_hardware()
    assert (found.variant, found.describe()) == (variant, text)


@pytest.mark.parametrize(
    ("output", "kind", "remedy"),
    [
        ("error: failed to write: No space left on device (os error 28)", ErrorKind.INSTALL_FAILED, "disk is full"),
        ("error sending request for url (https://x): dns error", ErrorKind.NO_NETWORK, "cannot be reached"),
        ("client error: invalid peer certificate: UnknownIssuer", ErrorKind.NO_NETWORK, "SSL_CERT_FILE"),
        ("Hash mismatch for `vllm==0.0.1`", ErrorKind.INSTALL_FAILED, "does not match the lock file"),
        ("ProxyError('Cannot connect to proxy.')", ErrorKind.NO_NETWORK, "HTTPS_PROXY"),
        ("error: Read-only file system (os error 30)", ErrorKind.INSTALL_FAILED, "not writable"),
        ("something else", ErrorKind.INSTALL_FAILED, "install.log"),
    ],
)
def test_a_failure_says_what_to_do(output: str, kind: ErrorKind, remedy: str) -> None:
    error = failure("/x/uv", 2, f"Resolved 2 packages\n{output}\n", Path("install.log"))
    assert error.kind is kind
    assert remedy in f"{error.message} {error.hint}"
    assert "install.log" in error.hint
    assert error.detail.endswith(output)


def record(engines: Engines, variant: str, installed_at: float) -> EngineRecord:
    """An engine that looks installed."""
    made = EngineRecord(
        name=f"vllm-1-{variant}", version="1.0", variant=variant, interpreter=sys.executable, installed_at=installed_at
    )
    environment = engines.folder_of(made.name) / ENVIRONMENT
    environment.mkdir(parents=True)
    write_state(environment, SetupState(SetupPhase.READY, variant))
    engines.write(made)
    return made


def test_the_engine_that_fits_the_gpu_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    engines = Engines(Paths.below(tmp_path))
    assert choose_engine(engines) is None
    cuda, cpu = record(engines, "cuda", 1.0), record(engines, "cpu", 2.0)
    monkeypatch.setattr(hardware, "find_hardware", lambda: Hardware(("H",), "580.1"))
    chosen = choose_engine(engines)
    assert chosen is not None and chosen.record == cuda
    monkeypatch.setattr(hardware, "find_hardware", Hardware)
    chosen = choose_engine(engines)
    assert chosen is not None and chosen.record == cpu
    added = record(engines, ADDED, 3.0)
    chosen = choose_engine(engines)
    assert chosen is not None and chosen.record == added


def test_an_engine_that_is_being_made_anew_is_not_used(tmp_path: Path) -> None:
    engines = Engines(Paths.below(tmp_path))
    made = record(engines, "cpu", 1.0)
    write_state(engines.folder_of(made.name) / ENVIRONMENT, SetupState(SetupPhase.INSTALLING, "cpu"))
    assert engines.all() == []
    (engines.folder_of(made.name) / ENVIRONMENT / "vlmtui-setup.json").write_text("{")
    assert read_state(engines.folder_of(made.name) / ENVIRONMENT) == SetupState()


def test_a_record_that_cannot_be_read_is_no_engine(tmp_path: Path) -> None:
    engines = Engines(Paths.below(tmp_path))
    made = record(engines, "cpu", 1.0)
    (engines.folder_of(made.name) / "engine.json").write_bytes(b"\xff{")
    assert engines.all() == []
    assert engines.incomplete() == [made.name]


def test_the_set_up_of_a_checkout_needs_no_package() -> None:
    names = "variants", "hardware", "environment", "indexes", "torch_build", "packages"
    imports = "; ".join(f"import vlmtui.engines.{name}" for name in names)
    code = f"import sys; sys.path.insert(0, sys.argv[1]); {imports}"
    source = Path(torch_build.__file__).parents[2]
    subprocess.run([sys.executable, "-I", "-S", "-c", code, str(source)], check=True)


def test_every_lock_has_hashes_and_exact_versions() -> None:
    for variant in VARIANTS.values():
        blocks = variant.lock.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()[1:]
        assert len(blocks) > 100
        assert all("==" in block and "--hash=sha256:" in block for block in blocks)
