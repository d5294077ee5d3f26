"""A hub that lies, stalls or never ends: every load ends with an error, and nothing half-made is taken for a file."""

from __future__ import annotations

import gzip
import hashlib
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.support.hub import REPOSITORY, Answer, Hub, answer, serving
from vlmtui.errors import ErrorKind
from vlmtui.worker.backends.vllm import hub_client
from vlmtui.worker.backends.vllm.engine_args import environment
from vlmtui.worker.backends.vllm.failures import explain_load
from vlmtui.worker.backends.vllm.hub_client import LIMITS, HubAnswerError, HubClient, HubLimits, limit_hub

hub_library = pytest.importorskip("huggingface_hub")

pytestmark = pytest.mark.timeout(120)

CONFIG, WEIGHTS = b'{"model_type": "x"}', bytes(range(256)) * 400
STRICT = HubLimits(
    wait_s=2.0,
    header_s=1.0,
    bytes_s_min=10_000,
    slow_s=0.3,
    listing_bytes_max=50_000,
    pages_max=3,
    unannounced_bytes_max=200_000,
    starts_max=2,
    pause_s_max=0,
)
"""So that a test takes no time; what is honest is asked with the usual ones."""
_CHUNK = "huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE"
_FILE = f"/{REPOSITORY}/resolve/"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    hooks = hub_library.get_session().event_hooks
    limit_hub(STRICT)
    with serving({"config.json": CONFIG, "model.safetensors": WEIGHTS}) as hub:
        yield hub
    hub_library.set_client_factory(lambda: httpx2.Client(event_hooks=hooks, follow_redirects=True, timeout=None))


def fetch(hub: Hub, cache: Path, name: str = "model.safetensors") -> bytes:
    return Path(hub_library.hf_hub_download(REPOSITORY, name, endpoint=hub.url, cache_dir=cache)).read_bytes()


def fetch_all(hub: Hub, cache: Path) -> Path:
    return Path(hub_library.snapshot_download(REPOSITORY, endpoint=hub.url, cache_dir=cache))


def blobs(cache: Path) -> list[Path]:
    """The contents that the cache holds; all of them must be what their names say."""
    found = list(cache.glob("models--*/blobs/*"))
    assert all(hashlib.sha256(path.read_bytes()).hexdigest() == path.name for path in found)
    return found


def sends(*pieces: bytes) -> Answer:
    def lie(connection: socket.socket, _head: str) -> None:
        for piece in pieces:
            connection.sendall(piece)

    return lie


def trickles(hub: Hub, beginning: bytes, piece: bytes = b"x") -> Answer:
    def lie(connection: socket.socket, _head: str) -> None:
        connection.sendall(beginning)
        while not hub.over.wait(0.05):
            connection.sendall(piece)

    return lie


def endless(hub: Hub, beginning: bytes, piece: bytes = b"10000\r\n" + bytes(65_536) + b"\r\n") -> Answer:
    def lie(connection: socket.socket, _head: str) -> None:
        connection.sendall(beginning)
        while not hub.over.is_set():
            connection.sendall(piece)

    return lie


def goes(to: str) -> Answer:
    return sends(answer(b"", f"Location: {to}", status="302 Found"))


def test_an_honest_hub_is_served_as_before(hub: Hub, tmp_path: Path) -> None:
    limit_hub()
    folder = fetch_all(hub, tmp_path)
    assert (folder / "config.json").read_bytes() == CONFIG
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    zipped = answer(gzip.compress(CONFIG), "Content-Encoding: gzip", *hub.heads("config.json"))
    hub.lies = {f"GET {_FILE}main/config.json": sends(zipped)}
    assert fetch(hub, tmp_path / "other", "config.json") == CONFIG


def test_a_file_that_was_cut_off_goes_on_where_it_was(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_CHUNK, 1000)
    limit_hub()
    hub.lies = {f"GET {_FILE}": _goes_on(hub, lambda start: WEIGHTS[start:])}
    assert fetch(hub, tmp_path) == WEIGHTS
    assert len(blobs(tmp_path)) == 1


def _goes_on(hub: Hub, rest: Callable[[int], bytes], *, at: int = 0) -> Answer:
    """Cuts the file off in the middle, and goes on with the `rest` from where it is asked to, or says another place."""
    heads = hub.heads("model.safetensors")

    def lie(connection: socket.socket, head: str) -> None:
        if found := re.search(r"bytes=(\d+)-", head):
            start = int(found[1])
            place = f"Content-Range: bytes {start + at}-{len(WEIGHTS) - 1}/{len(WEIGHTS)}"
            connection.sendall(answer(rest(start), place, *heads, status="206 Partial Content"))
        else:
            connection.sendall(answer(WEIGHTS[: len(WEIGHTS) // 2], *heads, length=len(WEIGHTS)))

    return lie


@pytest.mark.parametrize(
    ("rest", "at", "words"),
    [
        (lambda start: bytes(len(WEIGHTS) - start), 0, "does not have the SHA-256"),
        (lambda start: WEIGHTS[start - 1000 :], -1000, "goes on at byte 50000, and 51000 was asked for"),
    ],
    ids=["another content", "another place"],
)
def test_a_file_that_goes_on_as_another_one_is_refused(
    hub: Hub, tmp_path: Path, rest: Callable[[int], bytes], at: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_CHUNK, 1000)
    limit_hub()
    hub.lies = {f"GET {_FILE}": _goes_on(hub, rest, at=at)}
    with pytest.raises(HubAnswerError, match=words):
        fetch(hub, tmp_path)
    assert blobs(tmp_path) == []


def test_a_rest_of_which_the_beginning_was_not_seen_is_asked_for_as_a_whole(hub: Hub) -> None:
    limit_hub()
    with HubClient(LIMITS, follow_redirects=True) as client:
        url = f"{hub.url}{_FILE}main/model.safetensors"
        client.head(url)
        assert client.get(url, headers={"Range": "bytes=1000-"}).content == WEIGHTS
        place = f"Content-Range: bytes 0-999/{len(WEIGHTS)}"
        part = answer(WEIGHTS[:1000], place, *hub.heads("model.safetensors"), status="206 Partial Content")
        hub.lies = {f"GET {_FILE}": sends(part)}
        assert client.get(url, headers={"Range": "bytes=0-999"}).content == WEIGHTS[:1000], "a part has no hash"


def test_what_came_of_a_file_is_hashed_from_any_place_where_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_client, "_PIECE", 100)
    monkeypatch.setattr(hub_client, "_READ_AHEAD_MAX", 1000)
    file = hub_client._File()
    for start, end in ((0, 5000), (4500, 4600), (4600, 9000), (8000, 8000), (8000, len(WEIGHTS))):
        assert file.begin_at(start)
        for place in range(start, end, 70):
            file.take(WEIGHTS[place : min(place + 70, end)])
    assert not file.begin_at(5000), "too long ago"
    assert not file.begin_at(len(WEIGHTS) + 1)
    assert file.end() == hashlib.sha256(WEIGHTS).hexdigest()
    assert file.end() == hashlib.sha256(b"").hexdigest()


def _chunked(hub: Hub) -> Answer:
    return endless(hub, answer(b"", "Transfer-Encoding: chunked", *hub.heads("model.safetensors"), length=None))


def _says(hub: Hub, body: bytes, length: int | None = -1) -> Answer:
    return sends(answer(body, *hub.heads("model.safetensors"), length=length))


BODIES: dict[str, tuple[Callable[[Hub], Answer], str]] = {
    "endless": (_chunked, "is longer than 102400 bytes"),
    "endless, a byte now and then": (
        lambda hub: trickles(hub, answer(b"", *hub.heads("model.safetensors"), length=len(WEIGHTS))),
        "less than 10000 bytes a second",
    ),
    "a head without end": (lambda hub: trickles(hub, b"HTTP/1.1 200 OK\r\n", b"X"), "did not begin within 1 s"),
    "another length": (lambda hub: _says(hub, WEIGHTS + b"more"), "has 102404 bytes, and 102400 were announced"),
    "another content": (lambda hub: _says(hub, bytes(len(WEIGHTS))), "does not have the SHA-256"),
    "cut off again and again": (lambda hub: _says(hub, WEIGHTS[:100], length=len(WEIGHTS)), "was cut off 2 times"),
    "redirected for ever": (lambda hub: goes(f"{_FILE}main/model.safetensors"), "leads nowhere"),
    "redirected to a file": (lambda _: goes("file:///etc/passwd"), "leads nowhere"),
    "a redirect without end": (
        lambda hub: endless(hub, b"HTTP/1.1 302 Found\r\nLocation: /x\r\nTransfer-Encoding: chunked\r\n\r\n"),
        "is longer than 1000000 bytes",
    ),
    "compressed oddly": (
        lambda hub: sends(answer(WEIGHTS, "Content-Encoding: zstd", *hub.heads("model.safetensors"))),
        "is compressed by 'zstd'",
    ),
    "a bomb": (
        lambda hub: sends(
            answer(gzip.compress(bytes(10**8)), "Content-Encoding: gzip", *hub.heads("model.safetensors"))
        ),
        "is longer than 102400 bytes",
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_not_what_was_announced(hub: Hub, tmp_path: Path, name: str) -> None:
    make, words = BODIES[name]
    hub.lies = {f"GET {_FILE}": make(hub)}
    with pytest.raises(HubAnswerError, match=words) as raised:
        fetch(hub, tmp_path)
    assert blobs(tmp_path) == []
    assert not list(tmp_path.glob("models--*/snapshots/*/*"))
    told = explain_load(raised.value, [], name="owner/model")
    assert told.kind is ErrorKind.NO_NETWORK and words in told.detail and "refused" in told.message


@pytest.mark.parametrize("said", ["../../../evil", "{folder}/evil", "..", "a/b"])
@pytest.mark.parametrize("header", ["ETag", "X-Linked-Etag", "X-Repo-Commit"])
def test_names_in_headers_lead_nowhere(hub: Hub, tmp_path: Path, header: str, said: str) -> None:
    """huggingface_hub writes a file into its cache under these names."""
    heads = [line for line in hub.heads("model.safetensors") if not line.startswith(f"{header}:")]
    lie = sends(answer(b"", *heads, f'{header}: "{said.format(folder=tmp_path)}"', length=len(WEIGHTS)))
    hub.lies = {f"HEAD {_FILE}": lie}
    cache = tmp_path / "a" / "b" / "cache"
    with pytest.raises(HubAnswerError, match="is no name"):
        fetch(hub, cache)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["../../../evil", "{folder}/evil", "a/../../../../../evil"])
def test_listed_names_lead_nowhere(hub: Hub, tmp_path: Path, name: str) -> None:
    limit_hub()
    hub.lies = {
        f"GET /api/models/{REPOSITORY}/tree": sends(answer(hub.tree([name.format(folder=tmp_path)]))),
        "GET /api/": sends(answer(hub.listing([name.format(folder=tmp_path)]))),
        f"HEAD {_FILE}": sends(answer(b"", *hub.heads("config.json"), length=len(CONFIG))),
        f"GET {_FILE}": sends(answer(CONFIG, *hub.heads("config.json"))),
    }
    cache = tmp_path / "a" / "b" / "cache"
    with pytest.raises(Exception):  # noqa: B017 - huggingface_hub refuses by itself, in several ways
        fetch_all(hub, cache)
    assert not list(tmp_path.rglob("*evil*"))


def _pages(hub: Hub) -> Answer:
    def lie(connection: socket.socket, head: str) -> None:
        after = len(hub.requests)
        link = f'Link: <{hub.url}{head.split()[1].partition("?")[0]}?cursor={after}>; rel="next"'
        connection.sendall(answer(hub.tree(), link))

    return lie


LISTINGS: dict[str, tuple[Callable[[Hub], Answer], str]] = {
    "a web page": (lambda _: sends(answer(b"<html>Log in", type_="text/html; charset=utf-8")), "is a web page"),
    "huge": (lambda hub: sends(answer(hub.listing(["x" * 100] * 10_000))), "is longer than 50000 bytes"),
    "a bomb": (
        lambda _: sends(answer(gzip.compress(b" " * 10**8), "Content-Encoding: gzip")),
        "is longer than 50000 bytes",
    ),
    "endless": (
        lambda hub: endless(hub, answer(b"", "Transfer-Encoding: chunked", length=None)),
        "is longer than 50000 bytes",
    ),
    "silent": (lambda hub: trickles(hub, b"", b""), "did not begin within 1 s"),
}


@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_that_cannot_be_used(hub: Hub, tmp_path: Path, name: str) -> None:
    make, words = LISTINGS[name]
    hub.lies = {"GET /api/": make(hub)}
    with pytest.raises(HubAnswerError, match=words):
        fetch_all(hub, tmp_path)
    assert blobs(tmp_path) == []


def test_a_listing_with_pages_without_end(hub: Hub, tmp_path: Path) -> None:
    hub.lies = {f"GET /api/models/{REPOSITORY}/tree": _pages(hub)}
    with pytest.raises(HubAnswerError, match="more than 3 pages"):
        fetch_all(hub, tmp_path)


def test_ten_thousand_names_are_listed(hub: Hub, tmp_path: Path) -> None:
    limit_hub()
    names = [f"{number}.bin" for number in range(10_000)]
    hub.lies = {
        f"GET /api/models/{REPOSITORY}/tree": sends(answer(hub.tree(names))),
        "GET /api/": sends(answer(hub.listing(names))),
    }
    assert hub_library.HfApi(endpoint=hub.url).list_repo_files(REPOSITORY) == names


def test_a_hub_does_not_have_us_wait(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    busy = answer(b"", "Retry-After: 999999999", 'ratelimit: "api";r=0;t=999999999', status="429 Too Many Requests")
    hub.lies = {f"GET {_FILE}": sends(busy)}
    with pytest.raises(httpx2.HTTPError):
        fetch(hub, tmp_path)
    assert max(waited) <= 8


def test_cancelling_leaves_nothing(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a load that is aborted: whoever reads the body is interrupted in the middle."""
    monkeypatch.setattr(_CHUNK, 100)
    limit_hub()
    half = answer(WEIGHTS[:1000], *hub.heads("model.safetensors"), length=len(WEIGHTS))
    hub.lies = {f"GET {_FILE}": trickles(hub, half)}

    class Interrupted(BaseException):
        pass

    class Bar(hub_library.utils.tqdm):  # type: ignore[misc, name-defined]
        def update(self, n: float | None = 1) -> bool | None:
            raise Interrupted

    with pytest.raises(Interrupted):
        hub_library.hf_hub_download(
            REPOSITORY, "model.safetensors", endpoint=hub.url, cache_dir=tmp_path, tqdm_class=Bar
        )
    assert blobs(tmp_path) == []


@pytest.mark.parametrize(
    ("endpoint", "said"), [("http://127.0.0.1:1", "1"), ("https://huggingface.co/", None), (None, None)]
)
def test_another_hub_is_asked_over_http_alone(
    endpoint: str | None, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Xet's client has no such limits."""
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    if endpoint is not None:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
    assert environment({}).get("HF_HUB_DISABLE_XET") == said
