"""What the model said, while it says it and afterwards."""

from __future__ import annotations

import asyncio

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Collapsible, Markdown, Static

from vlmtui.domain.engine import Failure
from vlmtui.engine.session import Answer
from vlmtui.errors import ErrorKind
from vlmtui.ui.controllers.thinking import Parts, split_thinking
from vlmtui.ui.text import visible
from vlmtui.ui.widgets.answer_line import answer_line
from vlmtui.ui.widgets.live_markdown import LiveMarkdown
from vlmtui.ui.widgets.still_markdown import StillMarkdown
from vlmtui.ui.widgets.thinking_block import ThinkingBlock

REFRESH_S = 0.1
"""New text is shown at most this often."""

_DETAIL_MAX = 600
"""Characters of a failure's technical part; its end says most."""


class AssistantTurn(Vertical):
    """Shows an `Answer` that grows. `finish` when it is over; `freeze` makes it cheap once it is far above."""

    DEFAULT_CSS = """
    AssistantTurn {
        height: auto;
        margin: 1 0 0 0;
        padding: 0 1 0 2;
        .facts { height: auto; color: $muted 80%; }
        .waiting { height: 1; color: $muted; }
        .failure { height: auto; border-left: outer $error; padding: 0 1; margin-top: 1; }
    }
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer
        self.is_frozen = False
        self._shown = ""
        self._timer: Timer | None = None
        """None until there is a widget to write to."""
        self._showing = asyncio.Lock()

    def compose(self) -> ComposeResult:
        yield Static("…", classes="waiting")
        yield LiveMarkdown()
        facts = Static(classes="facts", markup=False)
        facts.display = False
        yield facts

    async def finish(self) -> None:
        """The answer is over: show the rest of it, its facts, and what went wrong if something did."""
        if self._timer is not None:
            self._timer.stop()
        elif not self.is_frozen:
            return
        await self._show_new()
        facts = self.query_one(".facts", Static)
        line = answer_line(self.answer)
        facts.update(line)
        facts.display = bool(line)
        if self.answer.failure is not None and not self.query(".failure"):
            await self.mount(Static(self._told(self.answer.failure), classes="failure", markup=False))

    async def restart(self, answer: Answer) -> None:
        """Show another answer from its beginning."""
        self.answer = answer
        self._shown = ""
        self._timer = None
        self.is_frozen = False
        await self.remove_children()
        await self.mount_all(self.compose())

    async def freeze(self) -> None:
        """Replace the Markdown's many widgets by one that looks the same."""
        if self.is_frozen or self.answer.outcome is None:
            return
        self.is_frozen = True
        body = self.query_one(LiveMarkdown)
        await self.mount(StillMarkdown(visible(self._parts().answer)), before=body)
        await body.remove()
        await self.query(".waiting").remove()
        await self.finish()

    @on(Markdown.TableOfContentsUpdated)
    async def _body_is_there(self, event: Markdown.TableOfContentsUpdated) -> None:
        """A Markdown widget clears itself when it is mounted and says this afterwards: text before that is lost."""
        event.stop()
        if self._timer is not None or event.markdown not in [*self.query(LiveMarkdown)]:
            return
        self._timer = self.set_interval(REFRESH_S, self._show_new)
        if self.answer.outcome is not None:
            await self.finish()

    @on(Collapsible.Toggled)
    def _toggled(self, event: Collapsible.Toggled) -> None:
        event.stop()

    def _parts(self) -> Parts:
        return split_thinking(self.answer.text, over=self.answer.outcome is not None)

    async def _show_new(self) -> None:
        async with self._showing:
            await self._show_parts()

    async def _show_parts(self) -> None:
        parts = self._parts()
        over = self.answer.outcome is not None
        self.query(".waiting").set(display=not over and not parts.answer and not parts.thinking)
        if parts.thinking:
            await self._show_thinking(parts)
        if self.is_frozen or parts.answer == self._shown:
            return
        body = self.query_one(LiveMarkdown)
        if parts.answer.startswith(self._shown):
            fragment = parts.answer[len(self._shown) :]
            self._shown = parts.answer
            await body.append(visible(fragment))
        else:
            self._shown = parts.answer
            await body.update(visible(parts.answer))

    async def _show_thinking(self, parts: Parts) -> None:
        blocks = self.query(ThinkingBlock)
        if blocks:
            blocks.first().show(parts)
        else:
            await self.mount(ThinkingBlock(parts), before=0)

    def _told(self, failure: Failure) -> Content:
        """What, why, what to do."""
        dead = failure.kind is ErrorKind.ENGINE_DIED
        lines = [
            Content.styled(visible(failure.message), "bold"),
            Content.styled(visible(failure.detail.strip()[-_DETAIL_MAX:]), "$muted"),
            Content("" if self.answer.text else "Nothing came, so later turns are sent without this one."),
            Content(visible(failure.hint)),
            Content.styled(f"{'F5 restarts the engine · ' if dead else ''}Ctrl+R asks again", "$muted"),
        ]
        return Content("\n").join(line for line in lines if line)
