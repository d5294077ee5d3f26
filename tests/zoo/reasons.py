"""Known reasons why a chat template and a raw prompt give different tokens."""

from __future__ import annotations

import re

_BOS = r"<s>|</s>|<bos>|<BOS_TOKEN>|<\|begin_of_text\|>|<｜begin▁of▁sentence｜>"
_RULES = (
    (
        rf'chat nothing, raw "(?:{_BOS})"',
        "The raw prompt starts with one more token: vLLM has the tokenizer add BOS to every raw prompt, but not to a "
        "prompt from a chat template. If the example's text also starts with BOS, there are two.",
    ),
    (
        r'chat "(?:<\|begin_of_text\|>|\[gMASK\]<sop>)", raw nothing',
        "The template writes start tokens that the example's raw prompt omits.",
    ),
    (r"Image-1: ", "The example numbers several images; the chat template does not."),
    (
        r'raw "[^"]*(?:system|You are a helpful assistant)',
        "The example has a system prompt; the chat template adds none by default.",
    ),
    (r'chat "<\|im_system\|>', "The chat template adds a default system prompt; the example has none."),
    (r"<think>", "The generation prompts differ: one of them opens a reasoning block."),
    (r'chat "<\|START_RESPONSE\|>', "The chat template's generation prompt ends with an extra token."),
    (
        r'chat "[^"]*(?:IMG|IMAGE_START|VIDEO_START|<image>)[^"]*", raw nothing',
        "One has the placeholders before the text, the other after it.",
    ),
    (r"<\|user\|>", "The example has no turn markers; the chat template writes them."),
    (r'chat " U"', "The turn formats differ: `User:` and `Assistant:` in the chat template, ChatML in the raw prompt."),
    (
        r'chat nothing, raw "(?:\\n| )+"|chat "(?:\\n| )+", raw (?:nothing|"(?:\\n| )+")',
        "White space between images, text and turns differs.",
    ),
)


def reasons(differences: str) -> str:
    """Return the known reasons for differences (`chat “…”, raw “…”`), as Markdown; empty if there are none."""
    return " ".join(reason for pattern, reason in _RULES if re.search(pattern, differences))
