"""Pages of PDF documents."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from vlmtui.errors import VlmtuiError
from vlmtui.media.gather import gather
from vlmtui.media.images import open_prepared
from vlmtui.media.pages import page_picture, split_pages, with_page
from vlmtui.media.stage import restage, stage

COLOURS = ("red", "green", "blue")


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    """Three pages of 4 × 2 inches, each of one colour."""
    pages = [Image.new("RGB", (400, 200), colour) for colour in COLOURS]
    pages[0].save(tmp_path / "paper.pdf", save_all=True, append_images=pages[1:], resolution=100)
    return tmp_path / "paper.pdf"


def empty_pages(count: int, *, points: tuple[int, int] = (200, 100)) -> bytes:
    """A document of empty pages, which are all one and the same object."""
    kids = " ".join(["3 0 R"] * count)
    bodies = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {count} /Kids [{kids}] >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {points[0]} {points[1]}] >>",
    ]
    return document(bodies)


def document(bodies: Sequence[str]) -> bytes:
    """A document of these objects, the first of which is its catalog."""
    text, offsets = "%PDF-1.4\n", []
    for number, body in enumerate(bodies, 1):
        offsets.append(len(text))
        text += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{at:010} 00000 n \n" for at in offsets)
    size = len(bodies) + 1
    tail = f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{len(text)}\n%%EOF\n"
    return f"{text}xref\n0 {size}\n0000000000 65535 f \n{table}{tail}".encode()


def forms_that_draw_each_other(depth: int) -> bytes:
    """A page that draws a form ten times, which draws another ten times, and so on."""

    def form(number: int, content: str) -> str:
        kind = f"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /F {number} 0 R >> >>"
        return f"<< {kind} /Length {len(content)} >>\nstream\n{content}\nendstream"

    page = (
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << /XObject << /F 4 0 R >> >> >>"
    )
    forms = [form(number + 1, "/F Do " * 10) for number in range(4, 4 + depth)]
    pages = ["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Count 1 /Kids [3 0 R] >>"]
    return document([*pages, page, *forms, form(1, "0 0 9 9 re f")])


def test_pages_are_images_of_their_own(paper: Path, tmp_path: Path) -> None:
    staged = stage(paper, tmp_path / "media", page=2)
    assert (staged.modality, staged.name, staged.format) == ("image", "paper.pdf (page 2)", "PDF")
    assert (staged.width, staged.height, staged.page, staged.pages) == (600, 300, 2, 3)
    assert staged.notes == ("page 2 of 3", "drawn at 150 dots per inch (4 × 2 inches)")
    red, green, blue = open_prepared(staged.path).resize((1, 1)).getpixel((0, 0))  # type: ignore[misc]
    assert green > 100 and red < 30 and blue < 30
    third = restage(staged, store=tmp_path / "media", page=3)
    assert third.name == "paper.pdf (page 3)"
    drawn = page_picture(paper)
    assert (drawn.image.size, drawn.pages) == ((600, 300), 3)


def test_pages_are_chosen_as_in_web_addresses(paper: Path, tmp_path: Path) -> None:
    assert split_pages("a.pdf#page=3-7") == ("a.pdf", range(3, 8), None)
    assert split_pages("a.pdf#page=0") == ("a.pdf#page=0", range(0), None)
    assert len(split_pages("a.pdf#page=1-999999").pages) == 1000
    found = gather("paper.pdf#page=2-3", base=tmp_path)
    assert [path.name for path in found.paths] == ["paper.pdf#page=2", "paper.pdf#page=3"]
    assert [stage(path, tmp_path / "media").page for path in found.paths] == [2, 3]
    (tmp_path / "paper.pdf#page=2").write_bytes(paper.read_bytes())
    assert with_page(tmp_path / "paper.pdf#page=2") == (tmp_path / "paper.pdf#page=2", 1, None)


def test_dots_per_inch_are_chosen_with_the_pages(paper: Path, tmp_path: Path) -> None:
    assert split_pages("a.pdf#page=3-4&dpi=72") == ("a.pdf", range(3, 5), 72)
    assert split_pages("a.pdf#dpi=72") == ("a.pdf", range(1, 2), 72)
    assert split_pages("a.pdf#dpi=") == ("a.pdf#dpi=", range(0), None)
    found = gather("paper.pdf#page=2-3&dpi=50", base=tmp_path)
    assert [path.name for path in found.paths] == ["paper.pdf#page=2&dpi=50", "paper.pdf#page=3&dpi=50"]
    staged = [stage(path, tmp_path / "media") for path in found.paths]
    assert [(one.page, one.width, one.height) for one in staged] == [(2, 200, 100), (3, 200, 100)]
    assert stage(tmp_path / "paper.pdf#dpi=900", tmp_path / "media").width == 3600
    largest = stage(tmp_path / "paper.pdf#page=1&dpi=1200", tmp_path / "media")
    assert largest.width == 4800 and largest.notes[1] == "drawn at 1200 dots per inch (4 × 2 inches)"
    for wrong in ("paper.pdf#dpi=9", "paper.pdf#dpi=1201"):
        with pytest.raises(VlmtuiError, match="dots per inch"):
            stage(tmp_path / wrong, tmp_path / "media")
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    with pytest.raises(VlmtuiError, match="not a PDF document"):
        stage(tmp_path / "a.png#dpi=100", tmp_path / "media")


def test_a_folder_does_not_mean_its_documents(paper: Path, tmp_path: Path) -> None:
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    assert [path.name for path in gather(".", base=tmp_path).paths] == ["a.png"]
    assert [path.name for path in gather("*.pdf", base=tmp_path).paths] == ["paper.pdf"]


def test_huge_pages_are_drawn_with_fewer_dots(tmp_path: Path) -> None:
    (tmp_path / "poster.pdf").write_bytes(empty_pages(1, points=(14400, 7200)))
    staged = stage(tmp_path / "poster.pdf", tmp_path / "media")
    assert (staged.width, staged.height) == (2000, 1000)
    assert staged.notes[1] == "drawn at 10 dots per inch (200 × 100 inches)"


def test_the_last_of_ten_thousand_pages_can_be_chosen(tmp_path: Path) -> None:
    (tmp_path / "long.pdf").write_bytes(empty_pages(10_000))
    assert stage(tmp_path / "long.pdf", tmp_path / "media", page=10_000).pages == 10_000
    with pytest.raises(VlmtuiError, match=r"long.pdf has no page 10,001: there are 10,000."):
        stage(tmp_path / "long.pdf", tmp_path / "media", page=10_001)


@pytest.mark.parametrize("content", [b"%PDF-1.7\n", b"%PDF-1.4\n" + b"\xff" * 5000, empty_pages(1)[:90]])
def test_damaged_documents_are_reported_by_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "b[ad\x1b.pdf").write_bytes(content)
    with pytest.raises(VlmtuiError, match=r"b\[ad␛.pdf") as caught:
        stage(tmp_path / "b[ad\x1b.pdf", tmp_path / "media", page=2)
    assert "\x1b" not in str(caught.value)


def test_encrypted_documents_are_reported_by_name(tmp_path: Path) -> None:
    text = empty_pages(1).replace(
        b"/Root 1 0 R",
        b"/Root 1 0 R /ID [<00><00>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <" + b"11" * 32
        + b"> /U <" + b"22" * 32 + b"> >>",
    )  # fmt: skip
    (tmp_path / "secret.pdf").write_bytes(text)
    with pytest.raises(VlmtuiError, match=r"secret.pdf is encrypted"):
        stage(tmp_path / "secret.pdf", tmp_path / "media")


def test_a_small_document_that_draws_without_end_is_refused(tmp_path: Path) -> None:
    """Drawing it took 22 seconds and 6 GB."""
    path = tmp_path / "laughs.pdf"
    path.write_bytes(forms_that_draw_each_other(12))
    assert path.stat().st_size < 5_000
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # the peak of earlier tests' processes
    with pytest.raises(VlmtuiError, match=r"laughs.pdf takes too much memory or time to draw: the limits are 1.0 GB"):
        stage(path, tmp_path / "media")
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < max(1_500_000, before + 1)
