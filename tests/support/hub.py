"""A model hub on this machine, on bare sockets, with faults that tests set."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

COMMIT = "c" * 40
REPOSITORY = "owner/model"
Answer = Callable[[socket.socket, str], None]


def answer(
    body: bytes, *headers: str, status: str = "200 OK", length: int | None = -1, type_: str = "application/json"
) -> bytes:
    """Return the bytes of an HTTP answer. `length` is the stated length; default: the true one; None: not stated."""
    said = len(body) if length == -1 else length
    lines = [f"HTTP/1.1 {status}", "Connection: close", f"Content-Type: {type_}", *headers]
    lines += [] if said is None else [f"Content-Length: {said}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Hub:
    """A hub with one repository. `lies` maps the start of a request ("GET /api/") to a faulty answer."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.lies: dict[str, Answer] = {}
        self.over = threading.Event()
        """Set when the test ends, so that endless answers stop."""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def listing(self) -> bytes:
        """Return the hub's description of the repository."""
        files = [{"rfilename": name, "size": 1, "blobId": "b" * 40} for name in self.files]
        return json.dumps({"id": REPOSITORY, "sha": COMMIT, "siblings": files}).encode()

    def tree(self) -> bytes:
        """Return the listing of the repository's folders."""
        return json.dumps([{"type": "file", "path": name, "size": 1, "oid": "b" * 40} for name in self.files]).encode()

    def heads(self, name: str) -> list[str]:
        """Return the headers of a file."""
        digest = hashlib.sha256(self.files[name]).hexdigest()
        return [
            f'ETag: "{digest}"',
            f'X-Linked-Etag: "{digest}"',
            f"X-Linked-Size: {len(self.files[name])}",
            f"X-Repo-Commit: {COMMIT}",
        ]

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._speak, args=(connection,), daemon=True).start()

    def close(self) -> None:
        self.over.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _speak(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                piece = connection.recv(4096)
                if not piece:
                    return
                head += piece
            line = head.split(b"\r\n")[0].decode()
            lie = next((said for start, said in self.lies.items() if line.startswith(start)), self._honest)
            lie(connection, head.decode())
            connection.shutdown(socket.SHUT_WR)

    def _honest(self, connection: socket.socket, head: str) -> None:
        method, path = head.split()[:2]
        if "/tree/" in path:
            connection.sendall(answer(self.tree()))
        elif path.startswith("/api/"):
            connection.sendall(answer(self.listing()))
        else:
            name = path.partition(f"/{REPOSITORY}/resolve/")[2].partition("/")[2].partition("?")[0]
            if name not in self.files:
                connection.sendall(answer(b"", "X-Error-Code: EntryNotFound", status="404 Not Found"))
                return
            body = self.files[name]
            said = answer(body if method == "GET" else b"", *self.heads(name), length=len(body), type_="text/plain")
            connection.sendall(said)


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Hub]:
    hub = Hub(files)
    threading.Thread(target=hub.serve, daemon=True).start()
    try:
        yield hub
    finally:
        hub.close()
