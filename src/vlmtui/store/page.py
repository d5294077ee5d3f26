"""A conversation as one self-contained web page: no scripts, nothing loaded from anywhere, all text escaped."""

from __future__ import annotations

import html
from pathlib import Path

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Media, Text
from vlmtui.store.document import Document, DocumentTurn
from vlmtui.store.export import NAMES, data_url, notes_of, visible

_POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c1c1e; --faint: #6b6b70; --user: #eef3fb; --line: #d8d8dc }
@media (prefers-color-scheme: dark) {
  :root { --paper: #17181a; --ink: #e6e6e8; --faint: #9a9aa0; --user: #20262f; --line: #34363a }
}
body { margin: 2rem auto; max-width: 50rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif }
article { border-top: 1px solid var(--line); padding: .75rem 1rem }
article.user { background: var(--user) }
h2 { font-size: .85rem; margin: 0 0 .25rem; color: var(--faint) }
.text { white-space: pre-wrap; overflow-wrap: anywhere }
figure { margin: .5rem 0 } img, video { max-width: 100%; max-height: 30rem }
figcaption, .note { color: var(--faint); font-size: .85rem; unicode-bidi: isolate }
"""


def to_html(document: Document) -> str:
    """The branch that is shown, images and videos inside as `data:` URLs; light or dark as the reader's system is."""
    title = _escaped(document.title) or "Conversation"
    articles = "\n".join(_article(turn) for turn in document.shown)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f"{articles}\n</body>\n</html>\n"
    )


def _article(turn: DocumentTurn) -> str:
    pieces = []
    for part in turn.parts:
        match part:
            case Text(text):
                pieces.append(f'<div class="text" dir="auto">{_escaped(text)}</div>' if text else "")
            case Media(attachment):
                pieces.append(_figure(attachment))
    pieces += [f'<p class="note">{_escaped(note)}</p>' for note in notes_of(turn)]
    return f'<article class="{turn.role}">\n<h2>{NAMES[turn.role]}</h2>\n{chr(10).join(pieces)}\n</article>'


def _figure(attachment: Attachment) -> str:
    name = _escaped(attachment.name)
    if not Path(attachment.path).is_file():
        return f"<figure><figcaption>{name} (the file is gone)</figcaption></figure>"
    url = html.escape(data_url(attachment))
    if attachment.modality == "video":
        shown = f'<video controls src="{url}"></video>'
    else:
        shown = f'<img alt="{name}" src="{url}">'
    return f"<figure>{shown}<figcaption>{name}</figcaption></figure>"


def _escaped(text: str) -> str:
    return html.escape(visible(text), quote=True)
