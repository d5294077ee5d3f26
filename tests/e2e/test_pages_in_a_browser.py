"""The web pages that vlmtui writes, in a real browser: drawn, silent, and legible on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.batches import Bench
from tests.support.browser import CHROMIUM, Browser, Seen
from tests.support.pictures import Easel
from tests.unit.inspection.test_replay import comparison
from tests.unit.store.test_export import filled
from vlmtui.errors import ErrorKind
from vlmtui.export.comparison import export_html
from vlmtui.export.conversation import NAMES, to_html
from vlmtui.session.batch.results import batch_page

pytestmark = [pytest.mark.e2e, pytest.mark.process, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")]

PHONE, DESK = 360, 1280
LONG = "an-unbreakable-" * 30


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as found:
        yield found


def looked_at(browser: Browser, page: Path, text: str) -> list[Seen]:
    """The page on a phone and on a desk; checks what holds for every page."""
    seen = [browser.look(page, width=width) for width in (PHONE, DESK)]
    for one in seen:
        assert text in one.text
        assert one.requests == []
        assert one.complaints == []
        assert one.width <= one.window, "nothing is cut off at the side"
        assert one.font_px >= 12
        assert len(one.screenshot) > 5_000
    return seen


async def test_a_batch(browser: Browser, tmp_path: Path) -> None:
    bench = Bench(tmp_path, lambda question: ErrorKind.CONTEXT_TOO_LONG if question.endswith("7") else None)
    hostile = "<script>fetch('https://example.org/x')</script><img src='https://example.org/y.png'>"
    bench.write(
        *({"id": f"{n}", "prompt": f"question {n}"} for n in range(120)),
        {"id": hostile, "prompt": f"{hostile} {LONG}", "expect": "no"},
    )
    await bench.run()
    page = tmp_path / "report.html"
    page.write_text(batch_page(bench.output, "shapes"), "utf-8")
    seen = looked_at(browser, page, "context_too_long")
    assert "0 of 1" in seen[0].text
    assert hostile in seen[0].text
    assert page.stat().st_size < 200_000


def test_a_conversation(browser: Browser, tmp_path: Path) -> None:
    _, document = filled(tmp_path)
    page = tmp_path / "conversation.html"
    page.write_text(to_html(document).text, "utf-8")
    looked_at(browser, page, NAMES["user"])


def test_a_comparison(browser: Browser, tmp_path: Path) -> None:
    picture = Easel(tmp_path).picture(("red", "circle", "center"))
    page = tmp_path / "comparison.html"
    page.write_text(export_html(comparison(), lambda item: picture.path.read_bytes()), "utf-8")
    looked_at(browser, page, "cat.png")


def test_the_browser_reports_a_faulty_page(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "wrong.html"
    page.write_text(
        "<body><div style='width: 900px; font-size: 5px'>wide</div><img src='http://127.0.0.1:9/x.png'>"
        "<script>console.error('no')</script></body>"
    )
    seen = browser.look(page, width=PHONE)
    assert seen.width > PHONE
    assert seen.font_px == 5
    assert seen.requests == ["http://127.0.0.1:9/x.png"]
    assert seen.complaints
