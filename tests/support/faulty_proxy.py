"""A proxy in front of a real `vllm serve` that plants a fault: it changes requests before the server gets them, or what
the server tells."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from PIL import Image, UnidentifiedImageError

Json = dict[str, Any]
_KEPT = ("content-type", "authorization")


def _images(body: Json) -> Iterator[list[Json]]:
    """Yield the image parts of each message."""
    for message in body.get("messages", ()):
        if isinstance(message.get("content"), list):
            yield [part for part in message["content"] if part.get("type") == "image_url"]


def _changed_images(change: Callable[[Image.Image], Image.Image]) -> Callable[[Json], None]:
    def apply(body: Json) -> None:
        for parts in _images(body):
            for part in parts:
                data = part["image_url"]["url"].partition(",")[2]
                written = io.BytesIO()
                try:
                    change(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")).save(written, "PNG")
                except UnidentifiedImageError:  # a client tries what the server accepts
                    continue
                part["image_url"]["url"] = f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode()}"

    return apply


def _drop_images(body: Json) -> None:
    for message in body.get("messages", ()):
        if isinstance(message.get("content"), list):
            message["content"] = [part for part in message["content"] if part.get("type") != "image_url"]


def _swap_images(body: Json) -> None:
    for parts in _images(body):
        urls = [part["image_url"] for part in parts]
        for part, url in zip(parts, reversed(urls), strict=True):
            part["image_url"] = url


def _add_system(body: Json) -> None:
    if "messages" in body:
        body["messages"].insert(0, {"role": "system", "content": "You are a helpful assistant."})


def _no_generation_prompt(body: Json) -> None:
    if "messages" in body:
        body["add_generation_prompt"] = False


def _ignore_end(body: Json) -> None:
    body |= {"ignore_eos": True, "stop_token_ids": [], "stop": []}


def _resize_to_half(body: Json) -> None:
    body["mm_processor_kwargs"] = {"min_pixels": 11_760, "max_pixels": 14_112}


REQUESTS: dict[str, Callable[[Json], None]] = {
    "a template with a system message": _add_system,
    "a template without its generation prompt": _no_generation_prompt,
    "pictures dropped": _drop_images,
    "two pictures swapped": _swap_images,
    "pictures of half the size": _resize_to_half,
    "red and blue exchanged": _changed_images(lambda image: Image.merge("RGB", image.split()[::-1])),
    "another normalisation": _changed_images(lambda image: image.point(lambda level: 60 + level // 2)),
    "another end of the answer": _ignore_end,
}
"""Faults that change the request."""


def _one_token_short(told: Any, image: int) -> None:
    """Remove one of the image's tokens from each list of token ids."""
    if isinstance(told, dict):
        for name, value in told.items():
            if name in ("prompt_token_ids", "tokens") and isinstance(value, list) and image in value:
                value.remove(image)
            else:
                _one_token_short(value, image)
    elif isinstance(told, list):
        for one in told:
            _one_token_short(one, image)


def _noisy(told: Any, token: object = "") -> None:
    """Add an error to each log-probability, the same for a token every time, as quantised weights do."""
    if isinstance(told, dict):
        for name, value in told.items():
            if name == "logprob" and isinstance(value, float):
                error = abs(random.Random(str(told.get("token", told.get("decoded_token", token)))).gauss(0.0, 0.05))
                told[name] = value - error
            else:
                _noisy(value, name)
    elif isinstance(told, list):
        for one in told:
            _noisy(one, token)


class FaultyProxy(ThreadingHTTPServer):
    """Forwards to the server at `port`. `fault`: the name of what is planted; empty: nothing."""

    daemon_threads = True

    def __init__(self, port: int, image_token: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target, self.image_token, self.fault = port, image_token, ""
        self.urls: dict[str, Json] = {}
        """The images that were sent, by the identifier with which a client names them later."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def change_request(self, body: Json) -> None:
        for parts in _images(body):
            for part in parts:
                name = part.pop("uuid", "")
                if name and part.get("image_url"):
                    self.urls[name] = part["image_url"]
                part["image_url"] = dict(part.get("image_url") or self.urls[name])
        if (change := REQUESTS.get(self.fault)) is not None:
            change(body)

    def change_answer(self, told: Any) -> None:
        if self.fault == "a placeholder one short":
            _one_token_short(told, self.image_token)
        elif self.fault == "noise on the logits":
            _noisy(told)


FAULTS = (*REQUESTS, "a placeholder one short", "noise on the logits")


class _Handler(BaseHTTPRequestHandler):
    server: FaultyProxy

    def do_GET(self) -> None:
        self._forward(None)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.change_request(body)
        self._forward(json.dumps(body).encode())

    def _forward(self, body: bytes | None) -> None:
        connection = HTTPConnection("127.0.0.1", self.server.target, timeout=300)
        headers = {name: value for name, value in self.headers.items() if name.lower() in _KEPT}
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        self.send_response(answer.status)
        kind = answer.headers.get("content-type", "")
        self.send_header("content-type", kind)
        self.end_headers()
        if kind.startswith("text/event-stream"):
            for line in answer:
                self.wfile.write(self._changed(line.removeprefix(b"data: "), b"data: ") if b"{" in line else line)
                self.wfile.flush()
        else:
            self.wfile.write(self._changed(answer.read(), b"") if "json" in kind else answer.read())
        connection.close()

    def _changed(self, data: bytes, prefix: bytes) -> bytes:
        told = json.loads(data)
        self.server.change_answer(told)
        return prefix + json.dumps(told).encode() + (b"\n" if prefix else b"")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


@contextmanager
def proxy(port: int, image_token: int) -> Iterator[FaultyProxy]:
    """Yield a proxy of the server at `port`; it ends afterwards."""
    server = FaultyProxy(port, image_token)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
