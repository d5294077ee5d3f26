"""Real secure servers with faulty certificates: each fault is reported by name, with a remedy."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.fault_server import FaultServer, fault_server, first_event, streams, token_event
from tests.worker.test_remote import CHAT, asked, connected, text_of
from vlmtui.errors import ErrorKind, VlmtuiError

PAST, FUTURE = "20210101000000Z", "20900101000000Z"


class Certificates:
    """The certificates of two authorities."""

    def __init__(self, folder: Path) -> None:
        ours, others = Authority(folder / "ours"), Authority(folder / "others")
        self.ca, self.other_ca = str(ours.ca), str(others.ca)
        self.server = ours.issue("server")
        self.other_host = ours.issue("elsewhere", host="DNS:elsewhere.test")
        self.expired = ours.issue("expired", end=PAST)
        self.early = ours.issue("early", start=FUTURE)
        self.client = str(ours.issue("client"))
        self.expired_client = str(ours.issue("expired-client", end=PAST))
        self.other_client = str(others.issue("client"))
        self.alone = folder / "alone.pem"
        self.alone.write_bytes(ours.ca.read_bytes() + (folder / "ours" / "ca.key").read_bytes())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def context(
    certificate: Path, *, clients_of: str | None = None, newest: ssl.TLSVersion | None = None
) -> ssl.SSLContext:
    """A server's; with `clients_of`, it takes clients with certificates of that authority alone."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_cert_chain(certificate)
    if newest is not None:
        found.maximum_version = newest
    if clients_of is not None:
        found.verify_mode = ssl.CERT_REQUIRED
        found.load_verify_locations(clients_of)
    return found


async def refused(url: str, **options: object) -> VlmtuiError:
    with pytest.raises(VlmtuiError) as failed:
        await connected(FaultServer(), url=url, **options)
    assert failed.value.kind is ErrorKind.NO_NETWORK and failed.value.detail
    assert url in failed.value.message
    return failed.value


@pytest.mark.parametrize(
    ("certificate", "trusted", "said", "hint"),
    [
        ("server", None, "unable to get local issuer certificate", "ca = "),
        ("server", "other_ca", "unable to get local issuer certificate", "ca = "),
        ("alone", None, "self-signed certificate", "ca = "),
        ("other_host", "ca", "not valid for", "the name that"),
        ("expired", "ca", "has expired", "clock"),
        ("early", "ca", "not yet valid", "clock"),
    ],
)
async def test_an_untrusted_certificate_is_reported(
    made: Certificates, certificate: str, trusted: str | None, said: str, hint: str
) -> None:
    given = {"ca": getattr(made, trusted)} if trusted else {}
    async with fault_server(context(getattr(made, certificate))) as server:
        failed = await refused(server.url, **given)
        assert said in failed.message and hint in failed.hint
        assert server.heads == [], "nothing was asked, and no key was sent"


async def test_a_certificate_of_an_authority_that_is_named_is_trusted(made: Certificates, tmp_path: Path) -> None:
    async with fault_server(context(made.server)) as server:
        assert text_of(await asked(server, tmp_path, ca=made.ca)) == "A red circle."


async def test_a_client_shows_its_certificate(made: Certificates, tmp_path: Path) -> None:
    async with fault_server(context(made.server, clients_of=made.ca)) as server:
        told = await asked(server, tmp_path, ca=made.ca, client_cert=made.client)
        assert text_of(told) == "A red circle."


VERSIONS = pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
CLIENTS = pytest.mark.parametrize("shown", [None, "other_client", "expired_client"])


@VERSIONS
@CLIENTS
async def test_a_servers_reason_for_refusing_a_client_is_shown(
    made: Certificates, newest: ssl.TLSVersion, shown: str | None
) -> None:
    given = {"client_cert": getattr(made, shown)} if shown else {}
    async with sends_alerts(context(made.server, clients_of=made.ca, newest=newest)) as url:
        failed = await refused(url, ca=made.ca, **given)
    assert "refused the secure connection: " in failed.message and "client_cert = " in failed.hint


@VERSIONS
@CLIENTS
async def test_a_silent_refusal_of_a_client_is_reported_with_a_hint(
    made: Certificates, newest: ssl.TLSVersion, shown: str | None
) -> None:
    """Servers on asyncio refuse this way, vLLM's among them."""
    given = {"client_cert": getattr(made, shown)} if shown else {}
    async with fault_server(context(made.server, clients_of=made.ca, newest=newest)) as server:
        failed = await refused(server.url, ca=made.ca, **given)
    assert "closed the secure connection" in failed.message and "client_cert = " in failed.hint


@asynccontextmanager
async def sends_alerts(tls: ssl.SSLContext) -> AsyncIterator[str]:
    """The address of a server that tells its clients why it refuses them, as those on OpenSSL's own connections."""

    def refuse_all() -> None:
        with suppress(OSError):  # the socket is shut when the test ends
            while True:
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    refuse(connection)

    def refuse(connection: socket.socket) -> None:
        copy = connection.dup()  # a failed handshake closes the other one
        with copy:
            with suppress(ssl.SSLError):
                tls.wrap_socket(connection, server_side=True)
            copy.shutdown(socket.SHUT_WR)
            while copy.recv(4096):  # what is left unread would take the alert with it
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(asyncio.to_thread(refuse_all))
        try:
            yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            await serving


async def test_a_plain_server_at_a_secure_address_is_reported() -> None:
    async def speaks_plainly(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(speaks_plainly, "127.0.0.1", 0)
    async with listening:
        failed = await refused(f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    assert "does not speak TLS" in failed.message and "http://" in failed.hint


@pytest.mark.parametrize("option", ["ca", "client_cert"])
@pytest.mark.parametrize("content", [None, "rubbish"])
async def test_a_file_that_holds_no_certificate_is_named(tmp_path: Path, option: str, content: str | None) -> None:
    file = tmp_path / "file.pem"
    if content:
        file.write_text(content)
    with pytest.raises(VlmtuiError, match="Can't read the certificates") as failed:
        await connected(FaultServer(), url="https://127.0.0.1:1", **{option: str(file)})
    assert str(file) in failed.value.detail


async def test_a_broken_secure_connection_keeps_the_partial_answer(made: Certificates, tmp_path: Path) -> None:
    async with fault_server(context(made.server)) as server:
        server.replies[CHAT] = [streams(first_event(), token_event(4))]
        with pytest.raises(VlmtuiError, match="in the middle of the answer") as failed:
            await asked(server, tmp_path, ca=made.ca)
    assert "What came is kept" in failed.value.hint
