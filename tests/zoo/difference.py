"""The differences between chat template and raw prompt, family by family: `docs/chat-and-raw.md`."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence

from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import PromptReady
from vlmtui.inspection.build import prompt_tokens
from vlmtui.inspection.prompt_diff import prompt_diff
from vlmtui.inspection.tokens import Piece
from vlmtui.registry.loader import Registry

IDENTICAL = "identical"
_LONGEST = 70
_TITLES = {"image": "one image", "images": "two images", "video": "a video"}
_HEAD = """# Chat template and raw prompt

Does a model get the same tokens from `chat` (messages and the model's chat template) as from
`generate` (the raw prompt of vLLM's own examples)?

For every model family, this page asks about one image, two images and a video both ways in the
real engine, and compares the token ids. An image's tokens count as one. The models are tiny and
random, with the real architecture and processor; their chat templates follow the published ones. A
family without a template gets one made from its record ([families.md](families.md)), so that both
prompts are equal.
`vlmtui ask --mode both` makes the same comparison with a model's own template.

`make zoo ARGS="--page docs/chat-and-raw.md"` writes this page.

"""
_BOS = r"<s>|</s>|<bos>|<BOS_TOKEN>|<\|begin_of_text\|>|<｜begin▁of▁sentence｜>"
_RULES = (
    (
        rf'chat nothing, raw "(?:{_BOS})"',
        "In vLLM the tokenizer adds BOS to a raw prompt, but not to a prompt from a chat template. If the example's "
        "text also starts with BOS, there are two.",
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
        "One prompt has the placeholders before the text, the other after it.",
    ),
    (r"<\|user\|>", "The example has no turn markers; the chat template writes them."),
    (r'chat " U"', "The turn formats differ: `User:` and `Assistant:` in the chat template, ChatML in the raw prompt."),
    (
        r'chat nothing, raw "(?:\\n| )+"|chat "(?:\\n| )+", raw (?:nothing|"(?:\\n| )+")',
        "White space between images, text and turns differs.",
    ),
)


def difference(chat: PromptReady, raw: PromptReady, attachments: Sequence[Attachment]) -> str:
    """Return `identical`, or every difference as `chat “…”, raw “…”`."""
    sides = (prompt_tokens(chat, attachments, name="chat"), prompt_tokens(raw, attachments, name="raw"))
    found = prompt_diff(*sides)
    if found.identical:
        return IDENTICAL
    spans = [span for span in found.spans if span.operation != "equal"]
    return "; ".join(f"chat {_quoted(_text(span.left))}, raw {_quoted(_text(span.right))}" for span in spans)


def page(results: Mapping[str, Mapping[str, str]]) -> str:
    """Return the page for the results of a run."""
    registry = Registry.bundled()
    same: list[str] = []
    families: dict[str, list[str]] = {}
    rows: list[str] = []
    for name, found in sorted(results.items()):
        cases = {
            case: found[f"{case} difference"].removeprefix("ok ") for case in _TITLES if f"{case} difference" in found
        }
        differences = {case: text for case, text in cases.items() if text != IDENTICAL}
        if not differences:
            same += [f"`{name}`"] if cases else []
            continue
        for reason in reasons("; ".join(differences.values())) or ["The reason is unknown."]:
            families.setdefault(reason, []).append(f"`{name}`")
        for text in dict.fromkeys(differences.values()):
            media = ", ".join(_TITLES[case] for case, other in differences.items() if other == text)
            rows.append(f"| {registry[name].title} (`{name}`) | {media} | {_code(text)} |")
    count = len(same) + len({row.partition(" | ")[0] for row in rows})
    alike = f"{len(same)} of {count} families get the same tokens both ways: {', '.join(same)}."
    why = [f"| {reason} | {', '.join(names)} |" for reason, names in families.items()]
    parts = ["## Equal prompts", "", *textwrap.wrap(alike, 100), "", "## Reasons", ""]
    parts += ["| reason | families |", "| --- | --- |", *why, "", "## Differences", ""]
    parts += ["| family | asked about | differences |", "| --- | --- | --- |", *rows]
    return _HEAD + "\n".join(parts) + "\n"


def reasons(differences: str) -> list[str]:
    """Return the known reasons for differences (`chat “…”, raw “…”`)."""
    return [reason for pattern, reason in _RULES if re.search(pattern, differences)]


def _text(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def _quoted(text: str) -> str:
    shown = json.dumps(text, ensure_ascii=False)
    if len(shown) > _LONGEST:
        half = _LONGEST // 2
        shown = f"{shown[:half]}…{shown[-half:]}"
    return shown if text else "nothing"


def _code(text: str) -> str:
    return f"`{text.replace('`', 'ˋ').replace('|', chr(92) + '|')}`"
