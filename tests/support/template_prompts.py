"""Sends each reduced template of `reasoning_templates` to an engine, and compares the prompt with Transformers'."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.support.equality import Answering
from tests.support.pictures import Easel
from tests.support.reasoning_templates import REASONING_TEMPLATES
from vlmtui.domain.conversation import ChatPrompt, Text, Turn, assistant_turn, system_turn, user_turn
from vlmtui.domain.generation import Failed, PromptReady, RenderRequest
from vlmtui.domain.sampling import Sampling
from vlmtui.domain.template import TEMPLATE

_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
"""The bundled model's placeholder of an image."""
_PAD = "<|image_pad|>"


def chats(folder: Path) -> Iterator[tuple[str, tuple[Turn, ...]]]:
    """Yield conversations by name: text, an image, and an image with a second turn."""
    picture = Easel(folder).picture(("red", "circle", "center")).attachment
    seen = user_turn("What is in this image?", [picture])
    yield "text", (system_turn("Be brief."), user_turn("Hello"))
    yield "image", (seen,)
    yield "turn 2", (seen, assistant_turn("A red circle."), user_turn("Where is it?"))


async def differing_prompts(engine: Answering, tokenizer: Any, folder: Path) -> tuple[list[str], int]:
    """Return the prompts that are not Transformers' own rendering, and the number of prompts. Ids are compared, too,
    with the tokens of an image counted as one."""
    found, count = [], 0
    pad = tokenizer.convert_tokens_to_ids(_PAD)
    for chat, turns in chats(folder):
        messages = [_message(turn) for turn in turns]
        for name, case in REASONING_TEMPLATES.items():
            source = case.source(_IMAGE)
            for variables in ({}, *case.choices):
                count += 1
                text = tokenizer.apply_chat_template(
                    messages, chat_template=source, tokenize=False, add_generation_prompt=True, **variables
                )
                sampling = Sampling(extra={TEMPLATE: dict(variables)} if variables else {})
                prompt = ChatPrompt(turns=turns, chat_template=source)
                ready = await _ready(engine, RenderRequest(request_id=f"t{count}", prompt=prompt, sampling=sampling))
                written = re.sub(rf"({re.escape(_PAD)})+", _PAD, ready.prompt)
                ids = [one for token, run in groupby(ready.token_ids) for one in ([pad] if token == pad else run)]
                if (written, ids) != (text, tokenizer(text, add_special_tokens=False).input_ids):
                    found.append(f"{name}, {chat}, {variables}: {written!r} is not {text!r}")
    return found, count


async def _ready(engine: Answering, request: RenderRequest) -> PromptReady:
    async for event in engine.generate(request):
        assert not isinstance(event, Failed), event.failure
        if isinstance(event, PromptReady):
            return event
    raise AssertionError("no prompt")


def _message(turn: Turn) -> dict[str, Any]:
    if not turn.attachments:
        return {"role": turn.role, "content": turn.text}
    parts = [{"type": "text", "text": one.text} if isinstance(one, Text) else {"type": "image"} for one in turn.parts]
    return {"role": turn.role, "content": parts}
