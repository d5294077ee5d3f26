"""Servers that are not vLLM's: llama.cpp's as it answered, others as their source and documents say that they do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.recorded_servers import EVERYTHING, Asked, Recording, ask, connect, played, sample
from vlmtui.domain.engine import EngineInfo


async def asked(name: str, folder: Path, questions: tuple[str, ...]) -> tuple[EngineInfo, dict[str, Asked]]:
    async with played(Recording.named(name)) as url:
        engine = await connect(url)
        try:
            return engine.info, await ask(engine, sample(folder), questions)
        finally:
            await engine.shutdown()


async def test_what_llama_cpp_answered_with_the_bundled_model(tmp_path: Path) -> None:
    assert Recording.named("llama.cpp").source == "recorded"
    info, told = await asked("llama.cpp", tmp_path, EVERYTHING)
    assert info.max_model_len == 4096
    assert not (info.capabilities.logprobs or info.capabilities.prompt_token_ids or info.capabilities.raw_media)
    assert told["chat"].text == told["raw"].text and told["chat"].text.startswith("Hello! Attach an image")
    end, seen = told["chat"].finished, told["picture"].finished
    assert end is not None and (end.finish_reason, end.usage.prompt_tokens, end.usage.completion_tokens) == (
        "length",
        15,
        24,
    )
    assert told["picture"].text.startswith("A red circle")
    assert seen is not None and (seen.finish_reason, seen.usage.prompt_tokens, seen.usage.cached_tokens) == (
        "stop",
        142,
        5,
    )
    assert "longer than the server's context" in told["too long"].failure
    assert "can't read one of the attachments" in told["no picture"].failure


@pytest.mark.parametrize(
    ("name", "context", "failure"),
    [
        ("sglang", 32768, "longer than the server's context"),
        ("ollama", None, "refused the request (404)"),
        ("lm-studio", None, "longer than the server's context"),
    ],
)
async def test_what_others_say_that_they_answer(tmp_path: Path, name: str, context: int | None, failure: str) -> None:
    assert "not recorded" in Recording.named(name).source
    info, told = await asked(name, tmp_path, ("chat", "picture", "raw", "too long"))
    assert info.max_model_len == (context or 1_000_000)
    for question in ("chat", "picture", "raw"):
        end = told[question].finished
        assert told[question].text == "A red circle."
        assert end is not None and (end.usage.prompt_tokens, end.usage.completion_tokens) == (9, 3)
    assert failure in told["too long"].failure
