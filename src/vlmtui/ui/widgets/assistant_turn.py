"""What the model said, while it says it and afterwards."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.timer import Timer
from textual.widgets import Collapsible, Markdown, Static

from vlmtui.domain.engine import Failure
from vlmtui.engine.session import Answer
from vlmtui.ui.controllers.thinking import Parts, split_thinking
from vlmtui.ui.text import visible
from vlmtui.ui.widgets.answer_line import answer_line

REFRESH_S = 0.1
"""New text is shown at most this often."""


class AssistantTurn(Vertical):
    """Shows an `Answer` that grows. `finish` when it is over; `freeze` makes it cheap once it is far above."""

    DEFAULT_CSS = """
    AssistantTurn {
        height: auto;
        margin: 1 0 0 0;
        padding: 0 1 0 2;
        Markdown { padding: 0; margin: 0; background: transparent; height: auto; }
        Markdown > *:last-child { margin-bottom: 0; }
        .frozen { height: auto; }
        .facts { height: auto; color: $faint; }
        .waiting { height: 1; color: $muted; }
        .failure { height: auto; border-left: outer $error; padding: 0 1; margin-top: 1; }
        Collapsible { background: transparent; border: none; padding: 0; margin: 0 0 1 0; }
        Collapsible CollapsibleTitle { padding: 0; color: $muted; background: transparent; }
        Collapsible Contents { padding: 0 0 0 2; }
        .thoughts { height: auto; color: $muted; }
    }
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer
        self.is_frozen = False
        self._shown = ""
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield Static("…", classes="waiting")
        yield Markdown(open_links=False)
        yield Static(classes="facts", markup=False)

    def on_mount(self) -> None:
        self._begin_soon()

    async def finish(self) -> None:
        """The answer is over: show the rest of it, its facts, and what went wrong if something did."""
        if self._timer is None:
            return
        self._timer.stop()
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
        self.is_frozen = False
        await self.remove_children()
        await self.mount_all(self.compose())
        self._begin_soon()

    async def freeze(self) -> None:
        """Replace the Markdown's many widgets by one that looks the same."""
        if self.is_frozen or self.answer.outcome is None:
            return
        self.is_frozen = True
        from rich.markdown import Markdown as RichMarkdown

        parts = self._parts()
        body = self.query_one(Markdown)
        still = Static(RichMarkdown(visible(parts.answer), hyperlinks=False), classes="frozen")
        await self.mount(still, before=body)
        await body.remove()
        await self.query(".waiting").remove()

    def _begin_soon(self) -> None:
        """Begin once the Markdown widget is there: when it is mounted it clears itself."""
        self._timer = None
        self.query_one(".facts").display = False
        self.call_after_refresh(self._begin)

    async def _begin(self) -> None:
        self._timer = self.set_interval(REFRESH_S, self._show_new)
        if self.answer.outcome is not None:
            await self.finish()

    @on(Collapsible.Toggled)
    def _toggled(self, event: Collapsible.Toggled) -> None:
        event.stop()

    def _parts(self) -> Parts:
        return split_thinking(self.answer.text, over=self.answer.outcome is not None)

    async def _show_new(self) -> None:
        parts = self._parts()
        over = self.answer.outcome is not None
        self.query(".waiting").set(display=not over and not parts.answer and not parts.thinking)
        if parts.thinking:
            await self._show_thinking(parts)
        if self.is_frozen or parts.answer == self._shown:
            return
        body = self.query_one(Markdown)
        if parts.answer.startswith(self._shown):
            fragment = parts.answer[len(self._shown) :]
            self._shown = parts.answer
            await body.append(visible(fragment))
        else:
            self._shown = parts.answer
            await body.update(visible(parts.answer))

    async def _show_thinking(self, parts: Parts) -> None:
        title = "Thinking…" if parts.is_thinking else "Thought"
        block = self.query(Collapsible)
        if not block:
            thoughts = Static(visible(parts.thinking), classes="thoughts", markup=False)
            await self.mount(Collapsible(thoughts, title=title, collapsed=not parts.is_thinking), before=0)
            return
        block.first().title = title
        self.query_one(".thoughts", Static).update(visible(parts.thinking))

    def _told(self, failure: Failure) -> str:
        lines = [failure.message, failure.hint, "F5 restarts the engine · Ctrl+R asks again"]
        if not self.answer.text:
            lines.insert(1, "Nothing came, so later turns are sent without this one.")
        return visible("\n".join(line for line in lines if line))
