"""A comparison as one HTML page that needs nothing else: no script, no network."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Iterable, Iterator

from vlmtui.inspection.as_markdown import difference_lines, facts, side_facts, side_title
from vlmtui.inspection.columns import Run, answer_runs, prompt_runs
from vlmtui.inspection.replay import Comparison, MediaRecord, Side
from vlmtui.inspection.visible import visible

_SHOWN_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
"""Nothing that could hold a script."""

_STYLE = """
:root { color-scheme: light dark; --text: #1c1e21; --page: #ffffff; --line: #c9ced6; --quiet: #5b6470;
  --special: #6b3fa0; --media: #0b6e4f; --differs: #ffe3b0; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e8eb; --page: #16181c; --line: #3a404a; --quiet: #9aa4b2;
  --special: #c9a6ff; --media: #6fd9b0; --differs: #5a3d00; } }
body { margin: 2rem auto; max-width: 90rem; padding: 0 1rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; }
h1, h2, h3 { line-height: 1.25; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; }
dt { color: var(--quiet); }
dd { margin: 0; overflow-wrap: anywhere; }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1.5rem; }
pre { padding: .75rem; border: 1px solid var(--line); border-radius: .25rem; white-space: pre-wrap;
  overflow-wrap: anywhere; unicode-bidi: isolate; font: .875rem/1.5 ui-monospace, monospace; }
figure { display: inline-block; margin: 0 1rem 1rem 0; }
figure img { display: block; max-width: 20rem; max-height: 15rem; }
figcaption, .facts { color: var(--quiet); overflow-wrap: anywhere; }
.special { color: var(--special); }
.media { color: var(--media); font-weight: 600; }
mark { background: var(--differs); color: inherit; text-decoration: underline; }
"""


def export_html(comparison: Comparison, read_media: Callable[[MediaRecord], bytes | None]) -> str:
    """The page: the images, the sides beside each other, and with what they were run.

    `read_media` gives an attachment's bytes, or None where they are gone; it is asked where the document itself does
    not hold them. Only PNG, JPEG, WebP and GIF are shown, everything else is named. All text is escaped, and
    control characters are made visible.
    """
    return "\n".join(_page(comparison, read_media)) + "\n"


def _page(comparison: Comparison, read_media: Callable[[MediaRecord], bytes | None]) -> Iterator[str]:
    title = f"Comparison: {_escaped(comparison.model, keep='')}"
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>"
    for item in comparison.attachments:
        yield _figure(item, item.content if item.data is not None else read_media(item))
    if said := difference_lines(comparison):
        yield "<h2>Difference</h2>\n<ul>"
        yield from (f"<li>{_escaped(line[:1].upper() + line[1:], keep='')}</li>" for line in said)
        yield "</ul>"
    yield '<div class="sides">'
    prompts, answers = prompt_runs(comparison), answer_runs(comparison)
    for side, prompt, answer in zip(comparison.sides, prompts, answers, strict=True):
        yield from _side(side, prompt, answer)
    yield "</div>\n<h2>How it was run</h2>\n<dl>"
    for name, value in facts(comparison):
        yield f"<dt>{_escaped(name)}</dt><dd>{_escaped(value, keep='')}</dd>"
    yield "</dl>\n</body>\n</html>"


def _side(side: Side, prompt: Iterable[Run], answer: Iterable[Run]) -> Iterator[str]:
    yield f"<section>\n<h2>{_escaped(side_title(side), keep='')}</h2>"
    yield f'<p class="facts">{_escaped(side_facts(side), keep="")}</p>'
    yield f"<h3>Prompt</h3>\n<pre>\n{_runs(prompt)}</pre>"
    if side.failure:
        yield f"<p><strong>Failed:</strong> {_escaped(side.failure)}</p>"
    yield f"<h3>Answer</h3>\n<pre>\n{_runs(answer)}</pre>\n</section>"


def _figure(item: MediaRecord, content: bytes | None) -> str:
    name = _escaped(item.name, keep="")
    if content is None:
        return f"<figure><figcaption>{name} (not here any more)</figcaption></figure>"
    if item.modality != "image" or item.media_type not in _SHOWN_TYPES:
        return f"<figure><figcaption>{name} ({len(content):,} bytes)</figcaption></figure>"
    data = base64.b64encode(content).decode()
    source = f"data:{item.media_type};base64,{data}"
    return f'<figure><img src="{source}" alt="{name}"><figcaption>{name}</figcaption></figure>'


def _runs(runs: Iterable[Run]) -> str:
    """For inside a `pre`, whose first line break a browser drops."""
    return "".join(_run(run) for run in runs)


def _run(run: Run) -> str:
    text = _escaped(run.text, keep="\n\t" if run.style == "text" else "")
    if run.differs and not run.text.strip():
        text = text.replace("\n", "↵\n").replace(" ", "·").replace("\t", "⇥")
    if run.style != "text":
        text = f'<span class="{run.style}">{text}</span>'
    return f"<mark>{text}</mark>" if run.differs else text


def _escaped(text: str, *, keep: str = "\n\t") -> str:
    return html.escape(visible(text, keep=keep))
