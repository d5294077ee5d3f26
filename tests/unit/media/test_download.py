"""Fetching by address, from real servers on this machine: honest ones, broken ones and hostile ones."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from tests.unit.media.made import corners
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.media.download import LIMITS, DownloadLimits
from vlmtui.media.download import download as fetching
from vlmtui.media.paths import is_url
from vlmtui.media.stage import stage_source

_QUICK = DownloadLimits(total_s=20.0, wait_s=10.0, bytes_max=1_000_000)
Answer = Callable[[socket.socket, str], None]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def png(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("made") / "x.png"
    corners().save(path)
    return path.read_bytes()


class Server:
    """Speaks to each connection with `answer`; remembers the requests' heads."""

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None) -> None:
        self.answer, self.tls = answer, tls
        self.heads: list[str] = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._speak, args=(connection,), daemon=True).start()

    def _speak(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            if self.tls:
                connection = self.tls.wrap_socket(connection, server_side=True)
            head = b""
            while b"\r\n\r\n" not in head:
                piece = connection.recv(4096)
                if not piece:
                    return
                head += piece
            self.heads.append(head.decode("latin-1"))
            self.answer(connection, self.heads[-1])
            connection.close()


def fetch(url: str, folder: Path, *, limits: DownloadLimits = LIMITS) -> Path:
    return asyncio.run(fetching(url, folder, limits=limits))


@contextmanager
def _serve(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(answer, tls)
    try:
        yield server
    finally:
        # Closing alone does not wake the thread that accepts.
        with suppress(OSError):
            server.socket.shutdown(socket.SHUT_RDWR)
        server.socket.close()


def _says(body: bytes, *headers: str, status: str = "200 OK", length: int | None = -1) -> Answer:
    """An answer; `length` None leaves Content-Length out, -1 tells the truth."""
    lines = [f"HTTP/1.1 {status}", *headers]
    if length is not None:
        lines.append(f"Content-Length: {len(body) if length < 0 else length}")
    whole = "\r\n".join([*lines, "", ""]).encode() + body
    return lambda connection, _head: connection.sendall(whole)


def _goes(where: str, status: str = "302 Found") -> Answer:
    return _says(b"", f"Location: {where}", status=status)


def _refusal(server: Server, folder: Path, limits: DownloadLimits = _QUICK, path: str = "/cat.png") -> VlmtuiError:
    with pytest.raises(VlmtuiError) as caught:
        fetch(server.url + path, folder, limits=limits)
    assert not folder.exists() or list(folder.iterdir()) == []
    return caught.value


@pytest.mark.parametrize(
    "text", ["http://a.example/x.png", " https://a.example\n", "HTTPS://[::1]:80/x", "http://me:pw@host/x?y=1#z"]
)
def test_addresses(text: str) -> None:
    assert is_url(text)


@pytest.mark.parametrize(
    "text",
    ["", "file:///etc/passwd", "ftp://host/x.png", "data:image/png;base64,AAAA", "http://", "http:///x", "https:x.png",
     "http://host:99999/", "http://[::1/", "see http://host/x.png", "http://host/a b.png", "javascript:alert(1)",
     "http://host/" + "x" * 10_000, "http", "cat.png", "http://host\x00/"],
)  # fmt: skip
def test_no_addresses(text: str, tmp_path: Path) -> None:
    assert not is_url(text)
    with pytest.raises(VlmtuiError, match="not an http or https address"):
        fetch(text, tmp_path)


def test_a_picture(tmp_path: Path, png: bytes) -> None:
    folder = tmp_path / "cache"
    with _serve(_says(png, "Content-Type: text/html")) as server:
        path = fetch(f"{server.url}/some/My%20cat%20%F0%9F%90%88.png?size=big#top", folder, limits=_QUICK)
    assert path.read_bytes() == png
    assert path.parent == folder
    assert path.name == f"{hashlib.sha256(png).hexdigest()}.png"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600
    assert "User-Agent: vlmtui\r\n" in server.heads[0]
    assert server.heads[0].startswith("GET /some/My%20cat%20%F0%9F%90%88.png?size=big HTTP/1.1\r\n")


def test_the_same_content_is_one_file(tmp_path: Path, png: bytes) -> None:
    with _serve(_says(png)) as server:
        first = fetch(f"{server.url}/cat.png", tmp_path, limits=_QUICK)
        again = fetch(f"{server.url}/dog.png", tmp_path, limits=_QUICK)
        assert again == first and list(tmp_path.iterdir()) == [first]
        first.write_bytes(b"spoilt")
        assert fetch(f"{server.url}/cat.png", tmp_path, limits=_QUICK).read_bytes() == png


def test_without_a_length(tmp_path: Path, png: bytes) -> None:
    with _serve(_says(png, length=None)) as server:
        assert fetch(server.url, tmp_path, limits=_QUICK).read_bytes() == png


def test_in_chunks(tmp_path: Path, png: bytes) -> None:
    halves = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (png[:50], png[50:]))
    with _serve(_says(halves + b"0\r\n\r\n", "Transfer-Encoding: chunked", length=None)) as server:
        assert fetch(server.url, tmp_path, limits=_QUICK).read_bytes() == png
    with _serve(_says(halves, "Transfer-Encoding: chunked", length=None)) as server:
        assert "cut off" in _refusal(server, tmp_path / "other").message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<!DOCTYPE html><html>" + b"x" * 9000, "is a web page (HTML), not an image"),
        (b"\n <html><p>hello", "is a web page (HTML), not an image"),
        (b"hello", "is text, not an image"),
        (b"PK\x03\x04" + bytes(100), "a ZIP archive"),
        (b"", "is empty"),
    ],
)
def test_a_download_without_a_picture_is_reported(tmp_path: Path, body: bytes, words: str) -> None:
    with _serve(_says(body, "Content-Type: image/png")) as server:
        error = _refusal(server, tmp_path)
    assert words in error.message and error.kind is ErrorKind.BAD_INPUT


def test_a_page_is_refused_at_its_beginning(tmp_path: Path) -> None:
    def endless(connection: socket.socket, _head: str) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n<html>")
        while True:
            connection.sendall(b"x" * 65_536)

    with _serve(endless) as server:
        assert "HTML" in _refusal(server, tmp_path, DownloadLimits(total_s=20, bytes_max=10**12)).message


def test_too_large(tmp_path: Path, png: bytes) -> None:
    small = DownloadLimits(bytes_max=1000)
    big = png + bytes(100_000)
    for answer in (_says(big), _says(big, length=None), _says(png, length=10**15)):
        with _serve(answer) as server:
            assert "too large" in _refusal(server, tmp_path, small).message


def test_a_length_that_lies(tmp_path: Path, png: bytes) -> None:
    with _serve(_says(png, length=len(png) + 10)) as server:
        error = _refusal(server, tmp_path)
    assert "cut off" in error.message and error.kind is ErrorKind.NO_NETWORK
    with _serve(_says(png + b"more", length=len(png))) as server:
        assert fetch(server.url, tmp_path, limits=_QUICK).read_bytes() == png
    for lie in ("minus", "-5", "1" * 5000):
        with _serve(_says(png, f"Content-Length: {lie}", length=None)) as server:
            assert _refusal(server, tmp_path / lie[:5]).kind in (ErrorKind.NO_NETWORK, ErrorKind.BAD_INPUT)


@pytest.mark.parametrize("status", ["404 Not Found", "403 Forbidden", "500 Oops", "204 No Content", "799 Odd\x1b[31m"])
def test_status(tmp_path: Path, status: str) -> None:
    with _serve(_says(b"", status=status)) as server:
        error = _refusal(server, tmp_path, path="/cat.png?secret=1")
    assert status[:3] in error.message and "\x1b" not in str(error) and "secret" not in str(error)


def test_redirects_are_followed(tmp_path: Path, png: bytes) -> None:
    def answer(connection: socket.socket, head: str) -> None:
        match head.split()[1]:
            case "/a":
                _goes("b?x=1", "301 Moved")(connection, head)
            case "/b?x=1":
                _goes(f"{server.url}/c ä.png", "308 Permanent Redirect")(connection, head)
            case "/c%20%C3%A4.png":
                _says(png)(connection, head)

    with _serve(answer) as server:
        assert fetch(f"{server.url}/a", tmp_path, limits=_QUICK).read_bytes() == png


def test_redirects_for_ever(tmp_path: Path) -> None:
    with _serve(_goes("/again")) as server:
        assert "redirected more than 5 times" in _refusal(server, tmp_path).message
    assert len(server.heads) == 6


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("file:///etc/passwd", "not allowed"),
        ("ftp://127.0.0.1/x.png", "not allowed"),
        ("data:image/png;base64,AAAA", "302 Found"),
        ("", "redirected more than 5 times"),
        ("http://[x/", "host not found"),
    ],
)
def test_redirects_elsewhere(tmp_path: Path, where: str, words: str) -> None:
    with _serve(_goes(where)) as server:
        assert words in _refusal(server, tmp_path).message


def test_an_endless_body_of_a_redirect_is_not_read(tmp_path: Path, png: bytes) -> None:
    def answer(connection: socket.socket, head: str) -> None:
        if head.startswith("GET /there"):
            _says(png)(connection, head)
            return
        connection.sendall(b"HTTP/1.1 302 Found\r\nLocation: /there\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65_536)

    with _serve(answer) as server:
        assert fetch(server.url, tmp_path, limits=_QUICK).read_bytes() == png


def test_credentials_stay_with_their_host(tmp_path: Path, png: bytes) -> None:
    with _serve(_says(png)) as other, _serve(_goes(f"{other.url}/cat.png")) as server:
        address = server.url.replace("://", "://me:s%40crets@")
        fetch(f"{address}/cat.png", tmp_path, limits=_QUICK)
    assert f"Authorization: Basic {base64.b64encode(b'me:s@crets').decode()}" in server.heads[0]
    assert "uthorization" not in other.heads[0] and "crets" not in other.heads[0]
    with _serve(_goes("http://a:crets@[x/")) as server, pytest.raises(VlmtuiError) as caught:
        fetch(server.url.replace("://", "://me:crets@"), tmp_path, limits=_QUICK)
    assert "crets" not in str(caught.value) + caught.value.detail


def test_cookies_and_compression_are_not_taken(tmp_path: Path, png: bytes) -> None:
    def answer(connection: socket.socket, head: str) -> None:
        if head.startswith("GET /there"):
            _says(png)(connection, head)
        else:
            _says(b"", "Location: /there", "Set-Cookie: who=me", status="302 Found")(connection, head)

    with _serve(answer) as server:
        assert fetch(server.url, tmp_path, limits=_QUICK).read_bytes() == png
    assert "ookie" not in server.heads[1] and "Accept-Encoding: identity\r\n" in server.heads[1]
    bomb = gzip.compress(bytes(100_000_000))
    with _serve(_says(bomb, "Content-Encoding: gzip")) as server:
        assert "a gzip archive" in _refusal(server, tmp_path / "other").message


def test_a_proxy_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for proxy in ("nonsense://127.0.0.1:1", "file:///etc/passwd"):
        monkeypatch.setenv("http_proxy", proxy)
        with pytest.raises(VlmtuiError, match="proxy set in the environment"):
            fetch("http://nowhere.invalid/cat.png", tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_secrets_of_an_address_are_not_kept(tmp_path: Path, png: bytes) -> None:
    """Neither name and password nor a signed query: what is kept is exported."""
    with _serve(_says(png)) as server:
        address = server.url.replace("://", "://me:sEcReT@") + "/cat.png?token=tOkEn#fRaGment"
        attachment = await stage_source(address, tmp_path / "store", tmp_path / "downloads")
    assert "token=tOkEn" in server.heads[0]
    assert (attachment.name, attachment.source) == ("cat.png", f"{server.url}/cat.png")
    stored = msgspec.json.encode(attachment).decode()
    assert not [secret for secret in ("sEcReT", "tOkEn", "fRaGment", "me:") if secret in stored]


def _hangs(*pieces: bytes, every_s: float = 0.05) -> tuple[Answer, threading.Event]:
    """Sends `pieces`, the last for ever; the event ends it."""
    over = threading.Event()

    def answer(connection: socket.socket, _head: str) -> None:
        for piece in pieces[:-1]:
            connection.sendall(piece)
        while not over.wait(every_s):
            connection.sendall(pieces[-1])

    return answer, over


@pytest.mark.parametrize(
    "pieces",
    [
        (b"",),
        (b"H",),
        (b"HTTP/1.1 200 OK\r\n", b"X"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n\x89PNG\r\n\x1a\n", b"x"),
        (b"HTTP/1.1 200 OK\r\n\r\n\x89PNG\r\n\x1a\n", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
    ],
)
def test_a_server_that_trickles_gets_no_more_time(tmp_path: Path, pieces: tuple[bytes, ...]) -> None:
    answer, over = _hangs(*pieces)
    with _serve(answer) as server:
        start = time.monotonic()
        error = _refusal(server, tmp_path, DownloadLimits(total_s=0.4, wait_s=30))
        assert time.monotonic() - start < 10
        over.set()
    assert "took more than 0.4 s" in error.message and error.kind is ErrorKind.NO_NETWORK


def test_a_server_that_is_silent(tmp_path: Path) -> None:
    answer, over = _hangs(b"")
    with _serve(answer) as server:
        error = _refusal(server, tmp_path, DownloadLimits(total_s=30, wait_s=0.2))
        over.set()
    assert "no answer for 0.2 s" in error.message


async def test_cancelling(tmp_path: Path) -> None:
    beginning = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n\x89PNG\r\n\x1a\n"
    for pieces in ((b"",), (beginning, b"")):
        answer, over = _hangs(*pieces)
        with _serve(answer) as server:
            start = time.monotonic()
            task = asyncio.create_task(fetching(server.url, tmp_path, limits=DownloadLimits(total_s=50, wait_s=40)))
            while not server.heads:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - start < 10
            over.set()
    assert list(tmp_path.iterdir()) == []


def test_servers_that_are_not_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for address, words in (
        (f"http://127.0.0.1:{port}/x.png", "server can't be reached"),
        ("http://nowhere.invalid/x.png", "host not found"),
        ("http://" + "a" * 70 + ".example/x.png", "host not found"),
    ):
        with pytest.raises(VlmtuiError, match=words):
            fetch(
                address, tmp_path, limits=DownloadLimits(total_s=200.0, wait_s=10.0)
            )  # name servers may be slow to refuse


@pytest.mark.parametrize(
    "said",
    [
        b"220 ftp ready\r\n\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 500_000 + b"\r\n\r\n",
    ],
)
def test_addresses_other_than_http_are_refused(tmp_path: Path, said: bytes) -> None:
    with _serve(lambda connection, _head: connection.sendall(said)) as server:
        assert _refusal(server, tmp_path).kind is ErrorKind.NO_NETWORK


def test_a_proxy_from_the_environment(tmp_path: Path, png: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with _serve(_says(png)) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        path = fetch("http://me:crets@nowhere.invalid/cat.png", tmp_path, limits=_QUICK)
    assert path.read_bytes() == png
    assert proxy.heads[0].startswith("GET http://nowhere.invalid/cat.png HTTP/1.1")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
def test_certificates_are_checked(tmp_path: Path, png: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", tmp_path / "key", "-out", tmp_path / "cert"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    with _serve(_says(png), tls) as server:
        assert "certificate is invalid" in _refusal(server, tmp_path / "cache").message
        assert server.heads == []
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert"))
        assert fetch(server.url, tmp_path / "cache", limits=_QUICK).read_bytes() == png


def test_a_silent_tls_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(VlmtuiError, match=r"took more than 0\.3 s"):
        fetch(f"https://127.0.0.1:{silent.getsockname()[1]}/", tmp_path, limits=DownloadLimits(total_s=0.3, wait_s=30))


def test_a_folder_that_cannot_be_written(tmp_path: Path, png: bytes) -> None:
    folder = tmp_path / "file"
    folder.write_text("x")
    with _serve(_says(png)) as server, pytest.raises(VlmtuiError):
        fetch(server.url, folder, limits=_QUICK)
