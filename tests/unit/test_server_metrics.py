"""Metrics of a vLLM server: as vLLM 0.32 wrote them, for two ranks, and what is no server of vLLM."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, opened
from vlmtui.config.settings import EngineSettings
from vlmtui.domain.metrics import parse_metrics
from vlmtui.engine.remote_models import fetch_metrics
from vlmtui.errors import VlmtuiError
from vlmtui.worker.backends.remote import http_api

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

REFUSALS = {
    "text": json.dumps({"error": "Unauthorized"}),
    "object": json.dumps({"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}),
    "detail": json.dumps({"detail": "Not authenticated"}),
    "empty": "",
}
"""A refused key: as vLLM says it, as OpenAI's own servers and most proxies do, as FastAPI does, and without a word."""


class Handler(BaseHTTPRequestHandler):
    """Answers by path."""

    def do_GET(self) -> None:
        bodies = {"/metrics": RECORDED, "/router/metrics": "<html>Sign in</html>", "/big/metrics": "x" * 100_000}
        status, body = (200, bodies[self.path]) if self.path in bodies else (404, "")
        if self.path.startswith("/locked/"):
            is_known = self.headers["Authorization"] == "Bearer the-right-key"
            status, body = (200, RECORDED) if is_known else (401, REFUSALS[self.path.split("/")[2]])
        self.send_response(302 if self.path == "/away/metrics" else status)
        self.send_header("Location", "/metrics")
        self.end_headers()
        self.wfile.write(body.encode())

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


def test_ranks_are_shown_separately() -> None:
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
    assert fetch_metrics(EngineSettings(url=address + path)).models == ("shapes",)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/nothing", "tells no metrics of vLLM"),
        ("/away", "not followed: the key would go along"),
        ("/router", "tells no metrics of vLLM"),
        ("/v1?key=secret", "holds no user, password or query"),
    ],
)
def test_other_addresses_are_reported_as_no_server(address: str, path: str, said: str) -> None:
    with pytest.raises(VlmtuiError, match=said) as caught:
        fetch_metrics(EngineSettings(url=address + path))
    assert caught.value.hint and "secret" not in str(caught.value)


def test_a_body_is_read_up_to_a_size(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_api, "_BODY_MAX", 50_000)
    with pytest.raises(VlmtuiError, match="more than an answer can hold"):
        fetch_metrics(EngineSettings(url=f"{address}/big"))


@pytest.mark.parametrize(
    "wrong", ["", "localhost:8000", "ftp://host", "http://", "http://[", "http://user:secret@host", "user:secret@["]
)
def test_invalid_addresses_are_reported(wrong: str) -> None:
    with pytest.raises(VlmtuiError) as caught:
        fetch_metrics(EngineSettings(url=wrong))
    assert "user:secret" not in str(caught.value)


def test_the_command_prints_a_table_or_json(cli: CommandLine, address: str) -> None:
    ran = cli("top", address)
    assert ran.code == 0 and "25.0%" in ran.out and "Model: shapes" in ran.err
    assert "7 of 18 images and videos came from the media cache." in ran.err and "First token: 20 ms / ? / ?" in ran.err
    told = json.loads(cli("top", f"{address}/v1", "--json").out)
    assert [rank["rank"] for rank in told["ranks"]] == ["0", "1"]
    assert cli("top", f"{address}/nothing").code == 1


@pytest.mark.parametrize(
    ("shape", "own_words"),
    [
        ("text", "Unauthorized"),
        ("object", "Incorrect API key provided"),
        ("detail", "Not authenticated"),
        ("empty", ""),
    ],
)
def test_missing_and_wrong_keys_are_distinguished(
    cli: CommandLine, address: str, monkeypatch: pytest.MonkeyPatch, shape: str, own_words: str
) -> None:
    without = cli("top", f"{address}/locked/{shape}")
    assert without.code != 0 and "wants a key (401); none was sent." in without.err
    assert "--key-env NAME" in without.err and own_words in without.err
    monkeypatch.setenv("BOX_KEY", "the-wrong-key")
    wrong = cli("top", f"{address}/locked/{shape}", "--key-env", "BOX_KEY")
    assert wrong.code != 0 and "refused this key (401)." in wrong.err
    assert own_words in wrong.err and "the-wrong-key" not in wrong.err + wrong.out
    monkeypatch.setenv("BOX_KEY", "the-right-key")
    assert cli("top", f"{address}/locked/{shape}", "--key-env", "BOX_KEY").code == 0


def test_a_server_is_found_by_its_name_in_the_settings(
    cli: CommandLine, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.paths.config.mkdir(parents=True)
    engine = f'[engines.box]\nurl = "{address}/locked/text"\napi_key_env = "BOX_KEY"\n'
    (cli.paths.config / "config.toml").write_text(engine)
    monkeypatch.setenv("BOX_KEY", "the-right-key")
    ran = cli("top", "box")
    assert ran.code == 0 and "Model: shapes" in ran.err
    assert "No running model is called 'bocks'" in cli("top", "bocks").err


def test_an_absent_server_is_reported_as_by_ask(cli: CommandLine) -> None:
    ran = cli("top", "http://127.0.0.1:1")
    assert ran.code != 0 and "Nothing listens at http://127.0.0.1:1." in ran.err
    assert "Is it running, and is the address right?" in ran.err
