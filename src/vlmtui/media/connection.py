"""A connection to a web server that ends when its time is over or the user has had enough; what goes wrong on it."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.error import URLError

import msgspec

from vlmtui.errors import ErrorKind, VlmtuiError

_LOOK_S = 0.05
"""How often the guard looks whether to stop, in seconds."""


class Limits(msgspec.Struct, frozen=True):
    """How much patience and room one fetch gets."""

    total_s: float = 60.0
    """For everything, redirects included; a server that trickles does not get more."""
    wait_s: float = 10.0
    """For the connection, and for each next piece."""
    bytes_max: int = 500_000_000
    redirects: int = 5


LIMITS = Limits()


class FetchCancelled(VlmtuiError):
    """The caller's `cancelled` said so."""


class Guard:
    """Ends a download's connection when its time is over or the user has had enough, whatever it is waiting for."""

    def __init__(self, cancelled: Callable[[], bool], limits: Limits) -> None:
        self.limits = limits
        self._cancelled = cancelled
        self._until = time.monotonic() + limits.total_s
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._twins: list[socket.socket] = []
        self._thread = threading.Thread(target=self._watch, name="vlmtui-fetch", daemon=True)

    def __enter__(self) -> Guard:
        self.check()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for twin in self._twins:
            twin.close()

    def check(self) -> None:
        """Raises VlmtuiError when it is time to stop."""
        if self._cancelled():
            raise FetchCancelled(ErrorKind.BAD_INPUT, "The download was cancelled.")
        if time.monotonic() >= self._until:
            raise VlmtuiError(
                ErrorKind.NO_NETWORK,
                f"The download took more than {self.limits.total_s:g} s and was given up.",
                hint="Fetch the file another way, and attach it from disk.",
            )

    def connect(self, address: tuple[str, int], *_: object) -> socket.socket:
        """As `socket.create_connection`. A twin of the socket is kept, through which the connection can be ended."""
        failure: OSError | None = None
        for family, kind, protocol, _name, where in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            self.check()
            made = socket.socket(family, kind, protocol)
            made.settimeout(max(0.01, min(self.limits.wait_s, self._until - time.monotonic())))
            with self._lock:
                self._twins.append(made.dup())
            try:
                made.connect(where)
            except OSError as error:
                made.close()
                failure = error
            else:
                made.settimeout(self.limits.wait_s)
                return made
        raise failure or OSError("the host has no address")

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            if self._cancelled() or time.monotonic() >= self._until:
                with self._lock:
                    for twin in self._twins:
                        with suppress(OSError):
                            twin.shutdown(socket.SHUT_RDWR)


class GuardedHandler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Both schemes, over connections that the guard makes."""

    def __init__(self, guard: Guard) -> None:
        urllib.request.HTTPHandler.__init__(self)
        self._guard = guard

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._plain, req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._safe, req)

    def _plain(self, host: str, /, *, timeout: float = 0.0, **_: Any) -> http.client.HTTPConnection:
        return self._guarded(http.client.HTTPConnection(host, timeout=timeout))

    def _safe(self, host: str, /, *, timeout: float = 0.0, **_: Any) -> http.client.HTTPConnection:
        context = ssl.create_default_context()
        return self._guarded(http.client.HTTPSConnection(host, timeout=timeout, context=context))

    def _guarded(self, connection: http.client.HTTPConnection) -> http.client.HTTPConnection:
        connection._create_connection = self._guard.connect  # type: ignore[attr-defined]
        return connection


def no_network(message: str, error: BaseException | str = "", hint: str = "") -> VlmtuiError:
    return VlmtuiError(ErrorKind.NO_NETWORK, message, detail=str(error), hint=hint)


@contextmanager
def network(name: str, guard: Guard) -> Iterator[None]:
    """What goes wrong on the net, in plain words; whatever it looks like, a stopped download is told as that."""
    try:
        yield
    except (OSError, http.client.HTTPException, ValueError) as error:
        guard.check()
        cause = error.reason if isinstance(error, URLError) and isinstance(error.reason, Exception) else error
        raise _told(cause, name, guard.limits) from error
    guard.check()


def _told(error: Exception, name: str, limits: Limits) -> VlmtuiError:
    match error:
        case ssl.SSLCertVerificationError():
            return no_network(f"{name} was not fetched: the server's certificate is not valid.", error)
        case ssl.SSLError():
            return no_network(f"{name} was not fetched: no safe connection to the server.", error)
        case socket.gaierror():
            return no_network(f"{name} was not fetched: the host was not found.", error, "Check the address.")
        case TimeoutError():
            return no_network(f"{name} was not fetched: the server did not answer for {limits.wait_s:g} s.", error)
        case http.client.IncompleteRead() | ConnectionResetError() | http.client.RemoteDisconnected():
            return no_network(f"{name} was cut off: the server broke the connection.", error, "Try again.")
        case http.client.HTTPException() | ValueError():
            return no_network(f"{name} was not fetched: the server's answer is no proper HTTP.", repr(error)[:300])
        case _:
            return no_network(f"{name} was not fetched: the server cannot be reached.", error)
