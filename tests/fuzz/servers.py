"""Readers of what a model server says: its answers over HTTP, its metrics, and the places in a model's text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import msgspec

from tests.fuzz.campaign import Reader
from tests.support.fault_server import FaultServer, event, fault_server, send, whole_answer
from vlmtui.domain.conversation import ChatPrompt, user_turn
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import GenerateRequest
from vlmtui.domain.metrics import parse_metrics
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import VlmtuiError
from vlmtui.inspection.grounding import find_marks, find_time_ranges, likeliest_format, place_mark
from vlmtui.registry.schema import CoordinateScale, Grounding, GroundingFormat
from vlmtui.worker.backends.remote.engine import connect_to_server

_CHAT = b"/v1/chat/completions"
_MARKS = (
    '[{"bbox_2d": [10, 20, 300, 400], "label": "cat"}, {"point_2d": [5, 6], "label": "\\ud83d"}]',
    "<|object_ref_start|>a cat<|object_ref_end|><|box_start|>(100,200),(300,400)<|box_end|>",
    "<ref>a cat</ref><box>(100,200),(300,400)</box>",
    "<|ref|>cat<|/ref|><|det|>[[10, 20, 300, 400], [1, 2, 3, 4]]<|/det|>",
    "<loc0100><loc0200><loc0300><loc0400> cat ; cat<loc_10><loc_20><loc_30><loc_40>",
    '<points x1="10.5" y1="20.5" x2="30" y2="40" alt="cat">cats</points><point x="1" y="2">dot</point>',
    "The cat is at [[100, 200, 300, 400]].",
)
_DELTAS: tuple[dict[str, object], ...] = (
    {"reasoning": "\ud83d", "reasoning_content": "a"},
    {
        "content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": "b"}]},
            {"type": "text", "text": "\ude00"},
        ]
    },
    {"refusal": "no", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}], "function_call": {"name": "g"}},
)
_METRICS = """\
# HELP vllm:num_requests_running Number of requests.
vllm:num_requests_running{engine="0",model_name="shapes"} 2.0
vllm:num_requests_waiting{engine="1",model_name="shapes"} 1e3
vllm:kv_cache_usage_perc{engine="0",model_name="shapes"} 0.25
vllm:prefix_cache_hits_total{engine="0",model_name="shapes"} 40.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="shapes"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="shapes"} 4.0
"""


def server_readers() -> list[Reader]:
    return [
        Reader("model server", _server_answers, lambda _, data: asyncio.run(_ask(data))),
        Reader("server metrics", lambda _: [_METRICS.encode()], lambda _, data: parse_metrics(data.decode("latin-1"))),
        Reader("places in answers", lambda _: [one.encode() for one in _MARKS], _read_places),
    ]


def _server_answers(_: Path) -> Sequence[bytes]:
    """A path, and what the server answers there; of a chat the events of its stream."""
    models = {"data": [{"id": "shapes", "root": "shapes", "parent": None, "max_model_len": 4096}]}
    bodies: dict[bytes, object] = {
        b"/v1/models": models,
        b"/version": {"version": "0.32.0"},
        b"/tokenize": {"tokens": [0, 1, 2, 9, 3], "count": 5, "max_model_len": 4096},
        b"/detokenize": {"prompt": "<|im_start|>user"},
    }
    return [
        *(path + b"\n" + json.dumps(body).encode() for path, body in bodies.items()),
        _CHAT + b"\n" + b"".join(whole_answer()),
        b'/v1/models\n{"error": {"message": "no such thing \\ud83d\\ude00", "code": 404}}',
        _CHAT + b'\ndata: {"error": {"message": "boom", "code": 500}}\n\ndata: [DONE]\n\n',
        _CHAT + b'\nevent: error\ndata: {"code": "429", "details": [{"loc": ["a", 1], "msg": {"raw": 1}}]}\n\n',
        _CHAT + b"\n" + b"".join(event(choices=[{"index": 0, "delta": delta}]) for delta in _DELTAS),
    ]


async def _ask(data: bytes) -> None:
    """A question to a server that answers so at one path, and honestly elsewhere."""
    path, _, body = data.partition(b"\n")
    kind = "text/event-stream" if path == _CHAT else "application/json"

    async def reply(_server: FaultServer, writer: asyncio.StreamWriter) -> None:
        await send(writer, body.decode("latin-1"), kind=kind)

    async with fault_server() as server:
        server.replies[path.decode("latin-1")] = [reply] * 50
        given: dict[str, object] = {"url": server.url, "wait_s": 0, "back_off_s": []}
        spec = LoadSpec(model="shapes", name="shapes", backend="remote", engine_args=given)
        try:
            engine = await connect_to_server(spec, lambda step: None)
            msgspec.json.encode(engine.info)
            prompt = ChatPrompt(turns=(user_turn("hello", []),))
            try:
                async for event in engine.generate(GenerateRequest(request_id="r", prompt=prompt, sampling=Sampling())):
                    msgspec.json.encode(event)
            finally:
                await engine.shutdown()
        except VlmtuiError as error:
            msgspec.json.encode((error.message, error.detail, error.hint))
            raise


def _read_places(_: Path, data: bytes) -> None:
    answer = data.decode("utf-8", "replace")
    likeliest_format(answer)
    for span in find_time_ranges(answer).ranges:
        span.label.encode()
        assert 0 <= span.start_s <= span.end_s
    for format in get_args(GroundingFormat):
        for mark in find_marks(answer, Grounding(format=format, scale="thousand", source="")).marks:
            mark.label.encode()
            for scale in get_args(CoordinateScale):
                placed = place_mark(mark, scale, (640, 480), (644, 476))
                left, top, right, bottom = placed.xyxy
                assert 0 <= left <= right <= 640 and 0 <= top <= bottom <= 480
