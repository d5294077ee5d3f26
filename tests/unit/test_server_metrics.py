"""Metrics of a vLLM server: as vLLM 0.32 wrote them, for two ranks, and what is no server of vLLM."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, opened
from vlmtui.domain.metrics import parse_metrics
from vlmtui.engine import server_metrics
from vlmtui.engine.server_metrics import fetch_metrics
from vlmtui.errors import VlmtuiError

RECORDED = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="shapes"} 2.0
vllm:num_requests_running{engine="1",model_name="shapes"} 0.0
vllm:num_requests_waiting{engine="0",model_name="shapes"} 8.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="shapes",reason="capacity"} 8.0
vllm:kv_cache_usage_perc{engine="0",model_name="shapes"} 0.25
vllm:prefix_cache_hits_total{engine="0",model_name="shapes"} 128.0
vllm:mm_cache_queries_total{engine="0",model_name="shapes"} 18.0
vllm:mm_cache_queries_created{engine="0",model_name="shapes"} 1.7954839471996958e+09
vllm:mm_cache_queries_total{engine="1",model_name="shapes"} 0.0
vllm:mm_cache_hits_total{engine="0",model_name="shapes"} 7.0
vllm:num_preemptions_total{engine="0",model_name="shapes"} 1.0
vllm:prompt_tokens_total{engine="0",model_name="shapes"} 45.0
vllm:generation_tokens_total{engine="0",model_name="shapes"} 180.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.01",model_name="shapes"} 0.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.02",model_name="shapes"} 2.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="shapes"} 2.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.25",model_name="shapes"} 3.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="shapes"} 3.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="shapes"} 3.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.01",model_name="shapes"} 0.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.02",model_name="shapes"} 0.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.1",model_name="shapes"} 0.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.25",model_name="shapes"} 0.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf",model_name="shapes"} 1.0
process_resident_memory_bytes 1.0
"""


class Handler(BaseHTTPRequestHandler):
    """Answers by path."""

    def do_GET(self) -> None:
        bodies = {"/metrics": RECORDED, "/router/metrics": "<html>Sign in</html>", "/big/metrics": "x" * 100_000}
        if self.path == "/away/metrics":
            self.send_response(302)
            self.send_header("Location", "/metrics")
        else:
            self.send_response(200 if self.path in bodies else 404)
        self.end_headers()
        self.wfile.write(bodies.get(self.path, "").encode())

    def log_message(self, format: str, *_: object) -> None:
        """Nothing is logged."""


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandLine]:
    with opened(tmp_path / "vlmtui", monkeypatch, capsys) as cli:
        yield cli


def test_ranks_are_told_apart() -> None:
    found = parse_metrics(RECORDED)
    first, second = found.ranks
    assert found.models == ("shapes",)
    assert (first.rank, first.running, first.waiting, first.kv_cache) == ("0", 2, 8, 0.25)
    assert (first.preemptions, first.prompt_tokens, first.cached_tokens, first.generated_tokens) == (1, 45, 128, 180)
    assert (second.rank, second.running, second.waiting) == ("1", 0, None)
    assert (found.media_hits, found.media_lookups) == (7, 18)


def test_percentiles_are_of_all_ranks() -> None:
    found = parse_metrics(RECORDED)
    half, most, nearly_all = found.first_token_s
    assert half == pytest.approx(0.02)
    assert (most, nearly_all) == (None, None), "they lie beyond the last bucket"
    assert found.between_tokens_s == (None, None, None)


@pytest.mark.parametrize(
    "line",
    [
        'vllm:num_requests_running{engine="0"} NaN',
        'vllm:num_requests_running{engine="0"} -1',
        'vllm:num_requests_running{engine="0"} much',
        'vllm:num_requests_running{engine="0" 1',
        'vllm:num_requests_running{model_name="m"} 1',
        "vllm:num_requests_running 1",
        'other:num_requests_running{engine="0"} 1',
        'vllm:num_requests_running{engine="' + "\\" * 10_000,
    ],
)
def test_a_line_that_is_wrong_is_skipped(line: str) -> None:
    assert parse_metrics(f"{line}\n").ranks == ()


def test_a_name_stays_on_its_line() -> None:
    found = parse_metrics('vllm:num_requests_running{engine="0",model_name="a\x1b[31m}{b\\"c"} 1.0\n')
    assert len(found.models) == 1 and "\x1b" not in found.models[0] and found.ranks[0].running == 1


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
def test_an_address_may_end_as_clients_write_it(address: str, path: str) -> None:
    assert fetch_metrics(address + path).models == ("shapes",)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/nothing", "answers with status 404"),
        ("/away", "answers with status 302"),
        ("/router", "has no metrics of vLLM"),
        ("/v1?key=secret", "is not taken"),
    ],
)
def test_what_is_no_server_is_said(address: str, path: str, said: str) -> None:
    with pytest.raises(VlmtuiError, match=said) as caught:
        fetch_metrics(address + path)
    assert caught.value.hint and "secret" not in str(caught.value)


def test_a_body_is_read_up_to_a_size(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_metrics, "_BYTES_MAX", 50_000)
    with pytest.raises(VlmtuiError, match="sends too much"):
        fetch_metrics(f"{address}/big")


@pytest.mark.parametrize(
    "wrong", ["", "localhost:8000", "ftp://host", "http://", "http://[", "http://user:secret@host", "user:secret@["]
)
def test_what_is_no_address_is_said(wrong: str) -> None:
    with pytest.raises(VlmtuiError) as caught:
        fetch_metrics(wrong)
    assert "user:secret" not in str(caught.value)


def test_the_command_prints_a_table_or_json(cli: CommandLine, address: str) -> None:
    ran = cli("top", address)
    assert ran.code == 0 and "25.0%" in ran.out and "Model: shapes" in ran.err
    assert "Media cache: 7 of 18" in ran.err and "First token: 20 ms / ? / ?" in ran.err
    told = json.loads(cli("top", f"{address}/v1", "--json").out)
    assert [rank["rank"] for rank in told["ranks"]] == ["0", "1"]
    assert cli("top", f"{address}/nothing").code == 2
