"""The content of the inspector's tabs, computed off the event loop. No widgets here."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from textual.content import Content

from vlmtui.session.media_facts import PromptMedia, media_items
from vlmtui.session.prompt_report import AnswerToken, Part, PromptReport, answer_tokens, prompt_pieces, template_of
from vlmtui.text import one_line
from vlmtui.ui.inspector.prompt_lines import prompt_lines, request_lines, template_lines
from vlmtui.ui.inspector.token_rows import TokenRows


class InspectorContent(msgspec.Struct, frozen=True):
    """Everything that the tabs show, ready to draw."""

    prompt: Sequence[Content]
    tokens: TokenRows
    media: Sequence[PromptMedia]
    template: Sequence[Content]
    request: Sequence[Content]
    answer: Sequence[AnswerToken]
    answer_text: Sequence[Content]
    """The answer's text, for answers whose tokens are unknown."""

    @classmethod
    def of(cls, inspected: PromptReport) -> InspectorContent:
        """Compute the content. Slow for long prompts."""
        return cls(
            prompt_lines(inspected) if inspected.text else _lines(inspected.made_here),
            TokenRows(prompt_pieces(inspected), inspected.vocabulary),
            media_items(inspected),
            template_lines(template_of(inspected)),
            request_lines(inspected),
            answer_tokens(inspected),
            _lines(inspected.answer),
        )

    def has(self, part: Part) -> bool:
        """Return whether a part has content."""
        return bool(len(getattr(self, part)) or (part == "answer" and self.answer_text))


def _lines(text: str) -> list[Content]:
    return [Content(one_line(line)) for line in text.split("\n")] if text else []
