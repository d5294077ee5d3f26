"""Why a chat template and a raw prompt give different tokens, as far as that is known."""

from __future__ import annotations

import re

_BOS = r"<s>|</s>|<bos>|<BOS_TOKEN>|<\|begin_of_text\|>|<｜begin▁of▁sentence｜>"
_RULES = (
    (
        rf'chat nothing, raw "(?:{_BOS})"',
        "The raw prompt has one token more at its beginning: vLLM lets the tokenizer put it before every raw prompt, "
        "but not before what a chat template wrote. Where the example's text begins with it as well, there are two.",
    ),
    (
        r'chat "(?:<\|begin_of_text\|>|\[gMASK\]<sop>)", raw nothing',
        "The template writes the beginning that the example's raw prompt leaves out.",
    ),
    (r"Image-1: ", "The example names several images by their numbers; the chat template does not."),
    (
        r'raw "[^"]*(?:system|You are a helpful assistant)',
        "The example writes a system prompt, which the chat template does not add by itself.",
    ),
    (r'chat "<\|im_system\|>', "The chat template adds a system prompt by itself; the example's raw prompt has none."),
    (r"<think>", "They begin the answer differently: one of them opens a thought."),
    (r'chat "<\|START_RESPONSE\|>', "The chat template begins the answer with a token of its own."),
    (
        r'chat "[^"]*(?:IMG|IMAGE_START|VIDEO_START|<image>)[^"]*", raw nothing',
        "Placeholders stand before the text in one of them, and behind it in the other.",
    ),
    (r"<\|user\|>", "The example has no turn markers; the chat template writes them."),
    (r'chat " U"', "They write the turns differently: `User:` and `Assistant:` here, ChatML there."),
    (
        r'chat nothing, raw "(?:\\n| )+"|chat "(?:\\n| )+", raw (?:nothing|"(?:\\n| )+")',
        "White space between images, text and turns is not the same.",
    ),
)


def reasons(differences: str) -> str:
    """What is known about these stretches (`chat “…”, raw “…”`), in Markdown; empty where nothing is."""
    return " ".join(reason for pattern, reason in _RULES if re.search(pattern, differences))
