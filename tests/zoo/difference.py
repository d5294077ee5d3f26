"""How the chat template's prompt differs from the raw one, family by family, as a page of the documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tests.zoo.reasons import reasons
from vlmtui.domain.attachment import Attachment
from vlmtui.domain.generation import PromptReady
from vlmtui.inspection.build import prompt_tokens
from vlmtui.inspection.prompt_diff import prompt_diff
from vlmtui.inspection.tokens import Piece
from vlmtui.registry.loader import Registry

IDENTICAL = "identical"
_LONGEST = 70
_TITLES = {"image": "one image", "images": "two images", "video": "a video"}
_HEAD = """# Chat template against raw prompt

Does a model get the same tokens from `chat` (messages and the model's chat template) as from `generate` (the raw prompt
of vLLM's own examples)? For every family that runs in the zoo (`make zoo`), this page asks a question about one image,
two images and a video both ways in the real engine, and compares the token ids; an image's run of tokens counts as one.
The tiny models of the zoo have the real architecture and processor. Their chat templates follow the published ones;
where a family has none, vlmtui derives one from its record, so that both are equal by construction. With the real
weights, `vlmtui ask --mode both` makes the same comparison with the model's own template.

`make zoo ARGS="--page docs/chat-and-raw.md"` writes this page.

"""


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
    rows: list[str] = []
    for name, found in sorted(results.items()):
        differences = {
            case: found[f"{case} difference"].removeprefix("ok ") for case in _TITLES if f"{case} difference" in found
        }
        if not differences:
            continue
        if set(differences.values()) == {IDENTICAL}:
            same.append(f"`{name}`")
            continue
        rows.append(f"### {registry[name].title} (`{name}`)\n")
        rows += [f"- {_TITLES[case]}: {_code(text)}" for case, text in differences.items()]
        rows.append(f"\n{reasons('; '.join(differences.values())) or 'The reason is unknown.'}\n")
    counted = f"{len(same)} of {len(same) + sum(row.startswith('###') for row in rows)} families get the same tokens"
    alike = f"## Identical\n\n{counted} both ways:\n{', '.join(same)}.\n\n"
    return _HEAD + alike + "## Different\n\n" + "\n".join(rows).rstrip() + "\n"


def _text(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def _quoted(text: str) -> str:
    shown = json.dumps(text, ensure_ascii=False)
    if len(shown) > _LONGEST:
        half = _LONGEST // 2
        shown = f"{shown[:half]}…{shown[-half:]}"
    return shown if text else "nothing"


def _code(text: str) -> str:
    return text if text == IDENTICAL else f"`{text.replace('`', 'ˋ')}`"
