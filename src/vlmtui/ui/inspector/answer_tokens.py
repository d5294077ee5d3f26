"""An answer token by token, with the facts of the selected token."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from vlmtui.session.prompt_report import AnswerToken
from vlmtui.text import one_line
from vlmtui.ui.document.blocks import PromptBlock
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.inspector.logprob_text import LIKELY, LogprobText, style_of
from vlmtui.ui.inspector.token_table import token_label
from vlmtui.ui.keys import short_keys, with_keys


class AnswerTokensPanel(Vertical):
    """The tokens above, the selected one's alternatives below; plain text if the tokens are unknown."""

    DEFAULT_CSS = """
    AnswerTokensPanel {
        #legend { height: 1; color: $muted; text-wrap: nowrap; text-overflow: ellipsis; }
        #answer-tokens, #answer-text { height: 1fr; margin-top: 1; }
        #pointed { height: 8; padding: 0 1; border-top: solid $border-blurred; }
    }
    """

    def compose(self) -> ComposeResult:
        yield Static(id="legend", markup=False)
        yield DocumentView(has_edge=False, can_focus=True, id="answer-text")
        yield LogprobText(id="answer-tokens")
        yield Static(id="pointed", markup=False)

    def show(self, tokens: Sequence[AnswerToken], text: Sequence[Content]) -> None:
        """Show the tokens; if there are none, the text."""
        self.query_one("#answer-text", DocumentView).show(PromptBlock(text))
        self.query_one(LogprobText).show_tokens(tokens)
        self.query_one("#answer-text").display = not tokens
        self.query_one(LogprobText).display = self.query_one("#pointed").display = bool(tokens)
        self.query_one("#legend", Static).update(self._legend(tokens))

    @property
    def document_view(self) -> DocumentView:
        """The tokens, or the text."""
        tokens = self.query_one(LogprobText)
        return tokens if tokens.display else self.query_one("#answer-text", DocumentView)

    def _legend(self, tokens: Sequence[AnswerToken]) -> Content:
        turn = f"{short_keys(self.app, 'logprob_text.left', 'logprob_text.right')} Token · "
        if not any(token.probability is not None for token in tokens):
            return Content(turn + with_keys(self.app, "{inspector.logprobs} Probability of each token"))
        jump = short_keys(self.app, "logprob_text.next_unlikely", "logprob_text.previous_unlikely")
        told: list[Content | tuple[str, str]] = [Content(f"{turn}{jump} Next/previous unlikely token · ")]
        for _, style, name in LIKELY:
            told += [(name, style), Content("  ")]
        return Content.assemble(*told)

    @on(LogprobText.TokenPointed)
    def _token_pointed(self, event: LogprobText.TokenPointed) -> None:
        event.stop()
        tokens = self.query_one(LogprobText).tokens
        known = event.index is not None and event.index < len(tokens)
        told = _token_facts(tokens[event.index or 0], event.index or 0, len(tokens)) if known else Content("")
        self.query_one("#pointed", Static).update(told)


def _token_facts(token: AnswerToken, index: int, count: int) -> Content:
    lines = [
        Content.assemble(
            (f"token {index + 1:,} of {count:,}  ", "$muted"),
            f"id {token.id}  ",
            (one_line(token_label(token.text)), "bold"),
        )
    ]
    if token.label:
        lines[0] = Content.assemble(lines[0], (f"  {one_line(token.label)}", "$muted"))
    if token.probability is not None:
        style = style_of(token.probability)
        lines[0] = Content.assemble(lines[0], "  ", (f"{token.probability:.1%}", style))
    for text, number, probability in token.alternatives:
        mark = "●" if number == token.id else " "
        lines.append(
            Content.assemble(
                f"{mark} ", (f"{probability:>7.2%}", style_of(probability)), (f"  {number:>8}  ", "$muted"),
                one_line(token_label(text)),
            )
        )  # fmt: skip
    return Content("\n").join(lines)
