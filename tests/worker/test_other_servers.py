"""A server that is not vLLM's: llama.cpp's, with the answers that it gave."""

from __future__ import annotations

from pathlib import Path

from tests.support.recorded_servers import Recording, ask, connect, played, sample


async def test_recorded_answers_of_llama_cpp_are_read(tmp_path: Path) -> None:
    async with played(Recording.named("llama.cpp")) as url:
        engine = await connect(url)
        try:
            info, told = engine.info, await ask(engine, sample(tmp_path))
        finally:
            await engine.shutdown()
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
    assert "refused the request (400)" in told["no picture"].failure
