"""Tokens of prompts and answers, by kind."""

from __future__ import annotations

from vlmtui.domain.generation import MediaSpan, PromptReady, Usage, usage_of


def test_tokens_of_a_video_are_no_image_tokens() -> None:
    spans = (
        MediaSpan(modality="image", index=0, offset=1, length=18, tokens=16),
        MediaSpan(modality="video", index=0, offset=20, length=170, tokens=1164),
        MediaSpan(modality="image", index=1, offset=200, length=4, tokens=4),
    )
    usage = usage_of(PromptReady(request_id="r", prompt="", token_ids=(1,) * 2000, media=spans), 3)
    assert usage == Usage(prompt_tokens=2000, completion_tokens=3, image_tokens=20, video_tokens=1164)
    assert usage.media_text == "20 image, 1,164 video"
    assert usage_of(None, 3) == Usage(completion_tokens=3) and Usage().media_text == ""
