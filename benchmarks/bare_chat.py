"""The smallest possible Textual chat, the reference for the app's start and streaming.

`python -m benchmarks.bare_chat [FOLDER]`. With a folder it answers with the stand-in engine of `benchmarks.streaming`,
in a worker in that folder. Each answer is one `Markdown` widget with one `MarkdownStream`, written every 100 ms.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Footer, Header, Input, Static

if TYPE_CHECKING:
    from vlmtui.engine.interface import Engine

_WRITE_EVERY_S = 0.1


class BareChat(App[None]):
    """A header, a transcript, an input and a footer."""

    AUTO_FOCUS = "Input"
    BINDINGS = [("ctrl+q", "quit", "Quit")]

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self._folder = folder
        self._engine: Engine | None = None

    def compose(self) -> ComposeResult:
        yield Header()
        with VerticalScroll():
            yield Static("bare chat")
        yield Input(placeholder="Message")
        yield Footer()

    def on_mount(self) -> None:
        if self._folder is not None:
            self.call_after_refresh(self.run_worker, self._load(self._folder))

    @on(Input.Submitted)
    def _asked(self, event: Input.Submitted) -> None:
        self.query_one(Input).value = ""
        self.run_worker(self._answer(event.value))

    async def _load(self, folder: Path) -> None:
        from benchmarks.streaming.engine import SPEC, host
        from vlmtui.paths import Paths

        self._engine = await host(Paths.below(folder)).open(SPEC, client="bare", keep_alive_s=0)
        async for _ in self._engine.load():
            pass
        self.sub_title = "ready"

    async def _answer(self, question: str) -> None:
        from textual.widgets import Markdown

        from benchmarks.streaming.engine import request
        from vlmtui.domain.generation import Delta

        assert self._engine is not None
        answer, scroll = Markdown(), self.query_one(VerticalScroll)
        await scroll.mount(Static(question, markup=False), answer)
        scroll.anchor()
        stream, waiting, written_at = Markdown.get_stream(answer), "", 0.0
        try:
            async for event in self._engine.generate(request(question)):
                waiting += event.text if isinstance(event, Delta) else ""
                if waiting and time.monotonic() - written_at >= _WRITE_EVERY_S:
                    await stream.write(waiting)
                    waiting, written_at = "", time.monotonic()
            await stream.write(waiting)
        finally:
            await stream.stop()
            self.call_after_refresh(scroll.scroll_end, animate=False)  # its anchor misses the last rows of a table


if __name__ == "__main__":
    BareChat(Path(sys.argv[1]) if sys.argv[1:] else None).run()
