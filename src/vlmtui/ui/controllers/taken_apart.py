"""Everything that the inspector shows of a prompt and its answer, made at once. No widgets here."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from textual.content import Content

from vlmtui.ui.controllers.inspecting import AnswerToken, Inspected, Part, answer_tokens, prompt_pieces
from vlmtui.ui.controllers.media_facts import MediaItem, media_items
from vlmtui.ui.controllers.prompt_lines import prompt_lines, request_lines, template_lines
from vlmtui.ui.controllers.token_rows import TokenRows
from vlmtui.ui.text import one_line


class TakenApart(msgspec.Struct, frozen=True):
    """Everything that is shown, ready to be drawn."""

    prompt: Sequence[Content]
    tokens: TokenRows
    media: Sequence[MediaItem]
    template: Sequence[Content]
    request: Sequence[Content]
    answer: Sequence[AnswerToken]
    answer_text: Sequence[Content]
    """Where the answer's tokens are not known."""

    @classmethod
    def of(cls, inspected: Inspected) -> TakenApart:
        """Slow for long prompts."""
        return cls(
            prompt_lines(inspected) if inspected.text else [],
            TokenRows(prompt_pieces(inspected), inspected.vocabulary),
            media_items(inspected),
            template_lines(inspected),
            request_lines(inspected),
            answer_tokens(inspected),
            [Content(one_line(line)) for line in inspected.answer.split("\n")] if inspected.answer else [],
        )

    def has(self, part: Part) -> bool:
        """Whether there is anything of it."""
        return bool(len(getattr(self, part)) or (part == "answer" and self.answer_text))
