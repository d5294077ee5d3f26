"""Markdown that grows while it is read."""

from __future__ import annotations

from textual.widgets import Markdown

from vlmtui.ui.markdown_lines import markdown_parser


class LiveMarkdown(Markdown):
    """Textual's Markdown in our looks, which `markdown_lines` draws too: change both. Start it empty, only append."""

    DEFAULT_CSS = """
    LiveMarkdown {
        height: auto;
        margin: 0;
        padding: 0;
        background: transparent;
        MarkdownHeader { margin: 1 0; color: $foreground; background: transparent; text-style: bold; }
        MarkdownH1, MarkdownH2 { color: $accent; content-align: left middle; }
        MarkdownFence { background: $surface; overflow: hidden; }
        MarkdownFence > Label { width: 1fr; }
        MarkdownTable { width: auto; max-width: 100%; background: transparent; }
        MarkdownTableContent > .header { color: $accent; text-style: bold; }
        MarkdownBlockQuote { background: transparent; border-left: outer $accent 50%; }
        MarkdownBullet { color: $accent; }
        MarkdownHorizontalRule {
            height: 1;
            margin: 0 0 1 0;
            padding: 0;
            border: none;
            border-top: solid $foreground 20%;
        }
        MarkdownBlock > .code_inline { background: $warning 10%; color: $text-warning 95%; }
        MarkdownHeader:first-child, MarkdownFence:first-child, MarkdownBlockQuote:first-child { margin: 0 0 1 0; }
        MarkdownParagraph:last-child, MarkdownBulletList:last-child, MarkdownOrderedList:last-child,
        MarkdownTable:last-child, MarkdownFence:last-child, MarkdownBlockQuote:last-child { margin-bottom: 0; }
    }
    """

    def __init__(self) -> None:
        super().__init__(open_links=False, parser_factory=markdown_parser)
