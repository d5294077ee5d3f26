"""What viewers and players honour, by format: each row makes its own file. Either the pixels or samples are those that
a viewer shows, or a note says that they are not, or the file is refused."""

from __future__ import annotations

import io
import re
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
import numpy.typing as npt
import pillow_heif
import pytest
from PIL import Image

from tests.unit.media.made import corners
from vlmtui.domain.conversation import Attachment
from vlmtui.errors import VlmtuiError
from vlmtui.media.frames import sample_frames
from vlmtui.media.images import open_prepared
from vlmtui.media.sound import read_sound
from vlmtui.media.stage import stage

CORNERS = np.asarray(corners())
"""64 × 48 pixels: red, green, blue and white quarters."""
DEEP_CORNERS = CORNERS.astype("<u2") * 257
GREY = np.tile(np.linspace(0, 255, 64).astype(np.uint8), (48, 1))
"""A ramp from black to white."""
DEEP_GREY = GREY.astype("<u2") * 257
HALF = np.dstack([CORNERS, np.full((48, 64), 255, np.uint8)])
HALF[:24, :32, 3] = 0
"""The corners with alpha: the red one is transparent."""

CLEAR = Image.fromarray(HALF)
RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)
UPRIGHT = (RED, GREEN, BLUE, WHITE)
OVER_WHITE = (WHITE, GREEN, BLUE, WHITE)
CLOCKWISE = (BLUE, RED, WHITE, GREEN)
MIRRORED = (GREEN, RED, WHITE, BLUE)
FLIPPED = (BLUE, WHITE, RED, GREEN)
TRANSPOSED = (RED, BLUE, GREEN, WHITE)
RAMP = ((32,) * 3, (226,) * 3, (32,) * 3, (226,) * 3)
REFUSED = "refused"

Colours = tuple[tuple[int, ...], ...]


class Row(NamedTuple):
    """`right`: the colours of the four corners; None: not judged. `told`: what a note or the refusal says, as a
    regular expression; "": there is no note."""

    name: str
    make: Callable[[], bytes]
    right: Colours | str | None
    told: str = ""


def quarters(pixels: npt.NDArray[Any]) -> Colours:
    high, wide = pixels.shape[:2]
    places = [(y, x) for y in (high // 8, high * 7 // 8) for x in (wide // 8, wide * 7 // 8)]
    return tuple(tuple(int(value) for value in pixels[place]) for place in places)


def seen(attachment: Attachment) -> npt.NDArray[Any]:
    """The picture, or a video's first frame."""
    if attachment.modality == "video":
        first: npt.NDArray[np.uint8] = sample_frames(attachment.path, attachment.sampling).frames[0]
        return first
    return np.array(open_prepared(attachment.path))


def judge(row: Row, suffix: str, folder: Path, *, usual: Sequence[str] = ()) -> Attachment | None:
    """Stage the row's file and compare. `usual`: patterns of notes that are always there."""
    path = folder / f"file.{suffix}"
    path.write_bytes(row.make())
    if row.right == REFUSED:
        with pytest.raises(VlmtuiError, match=row.told):
            stage(path, folder / "store")
        return None
    attachment = stage(path, folder / "store")
    notes = [note for note in attachment.notes if not any(re.match(pattern, note) for pattern in usual)]
    assert re.search(row.told, " / ".join(notes)) if row.told else not notes, notes
    if row.right is not None:
        off = np.abs(np.array(quarters(seen(attachment))) - np.array(row.right)).max()
        assert off <= 6, (quarters(seen(attachment)), row.right)
    return attachment


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def tiff(samples: npt.NDArray[Any], bits: int, *, inverted: bool = False, planes: bool = False, **tags: int) -> bytes:
    """A TIFF without compression, of 1, 3 or 4 samples per pixel. `inverted`: white is zero. `tags` by number:
    `t254=1`."""
    order = ">" if samples.dtype.byteorder == ">" else "<"
    depth = 1 if samples.ndim == 2 else samples.shape[2]
    parts = [samples[..., at].tobytes() for at in range(depth)] if planes else [samples.tobytes()]
    photometric = {1: 0 if inverted else 1}.get(depth, 2)
    entries: dict[int, list[int]] = {
        256: [samples.shape[1]], 257: [samples.shape[0]], 258: [bits] * depth, 259: [1], 262: [photometric],
        273: [0] * len(parts), 277: [depth], 278: [samples.shape[0]], 279: [len(part) for part in parts],
        284: [2 if planes else 1], **{int(key[1:]): [value] for key, value in tags.items()},
    }  # fmt: skip
    end = 8 + 2 + 12 * len(entries) + 4
    pool_at = end
    sizes = {tag: 4 * len(values) for tag, values in entries.items()}
    first = end + sum(size for size in sizes.values() if size > 4)
    entries[273] = [first + sum(map(len, parts[:at])) for at in range(len(parts))]
    table, pool = b"", b""
    for tag in sorted(entries):
        packed = struct.pack(f"{order}{len(entries[tag])}I", *entries[tag])
        if len(packed) > 4:
            pool, packed, pool_at = pool + packed, struct.pack(f"{order}I", pool_at), pool_at + len(packed)
        table += struct.pack(f"{order}HHI", tag, 4, len(entries[tag])) + packed
    start = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8)
    return start + struct.pack(f"{order}H", len(entries)) + table + bytes(4) + pool + b"".join(parts)


def floats(value: float, *, at: int = 3) -> npt.NDArray[np.float32]:
    """The ramp from 0 to 1, with another value at one place."""
    ramp = (GREY / 255).astype(np.float32)
    ramp[at, at] = value
    return ramp


def packed_bits(bits: int) -> npt.NDArray[np.uint8]:
    """The ramp with `bits` bits per sample, one after another."""
    digits = "".join(f"{int(value) * (2**bits - 1) // 255:0{bits}b}" for value in GREY.ravel())
    return np.frombuffer(int(digits, 2).to_bytes(len(digits) // 8, "big"), np.uint8).reshape(48, -1)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(extra: bytes) -> bytes:
    data = saved(corners(), "PNG")
    return data[:33] + extra + data[33:]


def jpeg(image: Image.Image, **options: Any) -> bytes:
    return saved(image, "JPEG", quality=95, subsampling=0, **options)


def _exif() -> Image.Exif:
    """Metadata that says: turn clockwise."""
    exif = Image.Exif()
    exif[274] = 6
    return exif


def photo() -> Image.Image:
    rng = np.random.default_rng(0)
    return Image.fromarray(
        (rng.integers(0, 40, (200, 300, 3)) + np.linspace(40, 200, 300)[None, :, None]).astype(np.uint8)
    )


def with_hole(data: bytes, start: float, stop: float) -> bytes:
    first, last = int(len(data) * start), int(len(data) * stop)
    return data[:first] + bytes(last - first) + data[last:]


def bmp(header: int, pixels: npt.NDArray[Any], *masks: int) -> bytes:
    start = struct.pack("<IiiHHIIiiII", header, 64, -48, 1, 32, 3, pixels.nbytes, 0, 0, 0, 0)
    start = (start + struct.pack(f"<{len(masks)}I", *masks)).ljust(header, b"\0")
    return (
        b"BM" + struct.pack("<IHHI", 14 + len(start) + pixels.nbytes, 0, 0, 14 + len(start)) + start + pixels.tobytes()
    )


def hdr(kind: str) -> bytes:
    """The corners with colours that claim to be BT.2020 and PQ."""
    if kind == "HEIF":
        pillow_heif.register_heif_opener()
        data = saved(corners(), kind, quality=100, chroma=444)
    else:
        data = saved(corners(), kind, quality=100)
    at = data.find(b"colrnclx") + 8
    return data[:at] + struct.pack(">HH", 9, 16) + data[at + 4 :]


def animation(kind: str, frames: Sequence[Image.Image] | None = None, **options: Any) -> bytes:
    first, *others = frames or [corners(), Image.new("RGB", (64, 48))]
    return saved(first, kind, save_all=True, append_images=others, duration=100, **options)


def with_profile(jp2: bytes) -> bytes:
    """The picture with a method of naming its colours by a profile."""
    at = jp2.index(b"colr") + 4
    return jp2[:at] + b"\2" + jp2[at + 1 :]


def without_last_frame(gif: bytes) -> bytes:
    return gif[: gif.rfind(b"!\xf9\x04")]


GAIN_MAP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    b'<rdf:Description xmlns:hdrgm="http://ns.adobe.com/hdr-gain-map/1.0/" hdrgm:Version="1.0"/></rdf:RDF></x:xmpmeta>'
)
WIDE = struct.pack(">8I", 31270, 32900, 68000, 32000, 26500, 69000, 15000, 6000)
ZEROS = "damaged: [0-9,]+ bytes from byte [0-9,]+ on are zeros"
DEEP = "^deep samples to 8 bits"

PICTURES = {
    "tif": [
        Row("16 bits", lambda: tiff(DEEP_GREY, 16), RAMP, "^16 bits to 8$"),
        Row("32 bits without sign", lambda: tiff(GREY.astype("<u4") * 16843009, 32), RAMP, DEEP),
        Row("12 bits", lambda: tiff(packed_bits(12), 12, t256=64), RAMP, DEEP),
        Row("white is zero", lambda: tiff(255 - GREY, 8, inverted=True), RAMP),
        Row("white is zero, 16 bits", lambda: tiff(65535 - DEEP_GREY, 16, inverted=True), RAMP, "^16 bits to 8$"),
        Row("white is zero, floats", lambda: tiff(1 - floats(0), 32, inverted=True, t339=3), RAMP, DEEP),
        Row("not a number", lambda: tiff(floats(np.nan), 32, t339=3), RAMP, "damaged: 1 of 3,072 samples"),
        Row("the first is no number", lambda: tiff(floats(np.nan, at=0), 32, t339=3), RAMP, "damaged: 1 of"),
        Row("infinite", lambda: tiff(floats(np.inf), 32, t339=3), RAMP, "damaged: 1 of 3,072 samples"),
        Row("infinite below", lambda: tiff(floats(-np.inf), 32, t339=3), RAMP, "damaged: 1 of 3,072 samples"),
        Row("all are no numbers", lambda: tiff(floats(0) * np.nan, 32, t339=3), None, "damaged: 3,072 of 3,072"),
        Row("a far outlier", lambda: tiff(floats(1e30), 32, t339=3), None, r"0 is black, 1e\+30 is white"),
        Row("planes", lambda: tiff(CORNERS, 8, planes=True), UPRIGHT),
        Row("planes of 16 bits", lambda: tiff(DEEP_CORNERS, 16, planes=True), REFUSED, "separate planes"),
        Row("alpha", lambda: tiff(HALF, 8, t338=2), OVER_WHITE, "^transparency over white$"),
        Row("a fourth sample of no meaning", lambda: tiff(HALF, 8, t338=0), UPRIGHT),
        Row("turned", lambda: tiff(CORNERS, 8, t274=6), CLOCKWISE, "turned upright"),
        Row("a reduced copy", lambda: tiff(CORNERS, 8, t254=1), UPRIGHT, "a reduced copy of another image"),
        Row("a fax", lambda: saved(corners(), "TIFF", dpi=(204, 98)), UPRIGHT, "not stretched, though 204 × 98 pixels"),
        Row("DNG", lambda: tiff(CORNERS, 8, t50706=0x401), REFUSED, "a camera's raw file"),
        Row("NEF, ARW", lambda: tiff(CORNERS, 8, t254=1, t271=0, t330=8), REFUSED, "a camera's raw file"),
    ],
    "png": [
        Row("turned", lambda: saved(corners(), "PNG", exif=_exif()), CLOCKWISE, "turned upright"),
        Row("HDR", lambda: png(chunk(b"cICP", bytes([9, 16, 0, 1]))), UPRIGHT, r"HDR \(PQ\) and BT.2020 colours"),
        Row("the usual gamma", lambda: png(chunk(b"gAMA", struct.pack(">I", 45455))), UPRIGHT),
        Row("another gamma", lambda: png(chunk(b"gAMA", struct.pack(">I", 100000))), UPRIGHT, "its gamma of 1 not"),
        Row(
            "other primary colours",
            lambda: png(chunk(b"cHRM", WIDE)),
            UPRIGHT,
            "its primary colours .* taken as sRGB's",
        ),
        Row("a hole", lambda: with_hole(saved(photo(), "PNG"), 0.4, 0.5), REFUSED, "does not decode"),
        Row("animated, turned", lambda: animation("PNG", exif=_exif()), CLOCKWISE, "turned upright"),
        Row(
            "animated, with another image for old viewers",
            lambda: animation("PNG", [Image.new("RGB", (64, 48), "red"), corners(), corners()], default_image=True),
            UPRIGHT,
        ),
    ],
    "jpg": [
        Row("turned", lambda: jpeg(corners(), exif=_exif()), CLOCKWISE, "turned upright"),
        Row("gain map", lambda: jpeg(corners(), xmp=GAIN_MAP), UPRIGHT, "HDR gain map"),
        Row("a hole", lambda: with_hole(jpeg(photo()), 0.5, 0.7), None, ZEROS),
        Row("a flat picture: all zeros", lambda: jpeg(Image.new("L", (4000, 3000)), optimize=True), None),
        Row("a zero tail", lambda: with_hole(jpeg(photo()), 0.7, 1), REFUSED, "cut off"),
    ],
    "webp": [
        Row(
            "alpha", lambda: saved(Image.fromarray(HALF), "WEBP", lossless=True), OVER_WHITE, "transparency over white"
        ),
        Row("animated, turned", lambda: animation("WEBP", exif=_exif(), lossless=True), CLOCKWISE, "turned upright"),
        Row("a zero tail", lambda: with_hole(saved(photo(), "WEBP"), 0.7, 1), None, ZEROS),
    ],
    "gif": [
        Row("a zero tail", lambda: without_last_frame(animation("GIF")) + bytes(2000), UPRIGHT, ZEROS),
        Row("a zero tail in a frame", lambda: with_hole(saved(photo(), "GIF"), 0.7, 1), REFUSED, "cut off or damaged"),
    ],
    "avif": [
        Row("HDR", lambda: hdr("AVIF"), None, r"HDR \(PQ\) and BT.2020 colours"),
        Row("alpha", lambda: saved(CLEAR, "AVIF", quality=100), None, "transparency over white"),
        Row("a zero tail", lambda: with_hole(saved(photo(), "AVIF"), 0.7, 1), None, ZEROS),
    ],
    "heic": [
        Row("HDR", lambda: hdr("HEIF"), UPRIGHT, r"HDR \(PQ\) and BT.2020 colours"),
        Row("a zero tail", lambda: with_hole(saved(photo(), "HEIF"), 0.7, 1), None, ZEROS),
    ],
    "jp2": [
        Row("as it is", lambda: saved(corners(), "JPEG2000"), UPRIGHT),
        Row("profile", lambda: with_profile(saved(corners(), "JPEG2000")), UPRIGHT, "its colour profile not applied"),
        Row("a hole", lambda: with_hole(saved(photo(), "JPEG2000"), 0.5, 0.6), None, ZEROS),
    ],
    "bmp": [
        Row(
            f"alpha, a header of {size} bytes",
            lambda size=size: bmp(size, HALF[..., [2, 1, 0, 3]], 0xFF0000, 0xFF00, 0xFF, 0xFF000000),  # type: ignore[misc]
            OVER_WHITE,
            "transparency over white",
        )
        for size in (56, 108, 124)
    ],
    "raw": [
        Row(name, lambda start=start: start + bytes(4000), REFUSED, "a camera's raw file")  # type: ignore[misc]
        for name, start in {
            "CR3": b"\0\0\0\x18ftypcrx \0\0\0\1crx isom",
            "CRW": b"II\x1a\0\0\0HEAPCCDR",
            "ORF": b"IIRO\x08\0\0\0",
            "RAF": b"FUJIFILMCCD-RAW 0201",
            "RW2": b"IIU\0\x08\0\0\0",
            "X3F": b"FOVb",
        }.items()
    ],
}


def rows(table: dict[str, list[Row]]) -> list[Any]:
    return [pytest.param(kind, row, id=f"{kind}: {row.name}") for kind, found in table.items() for row in found]


@pytest.mark.parametrize(("suffix", "row"), rows(PICTURES))
def test_pictures(suffix: str, row: Row, tmp_path: Path) -> None:
    judge(row, suffix, tmp_path)


def document(
    content: str = "", *, annotation: str = "", page: str = "", catalogue: str = "", **objects: bytes
) -> bytes:
    """A page of 200 × 100 points. Objects: `font` F1, `image` I, `layer` L, and a red form of 100 × 40 for 11 0 R."""
    names = "/Font << /F1 5 0 R >> /XObject << /I 7 0 R >> /Properties << /L 8 0 R >>"
    bodies = [
        f"<< /Type /Catalog /Pages 2 0 R {catalogue} >>".encode(),
        b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] /Contents 4 0 R /Annots [10 0 R] {page}"
        f" /Resources << {names} >> >>".encode(),
        stream("", content.encode()),
        objects.get("font", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"),
        b"null",
        objects.get("image", b"null"),
        b"<< /Type /OCG /Name (L) >>",
        b"null",
        f"<< /Type /Annot /Rect [20 20 120 60] {annotation} >>".encode() if annotation else b"null",
        stream("/Type /XObject /Subtype /Form /BBox [0 0 100 40]", b"1 0 0 rg 0 0 100 40 re f"),
    ]
    out, table = b"%PDF-1.7\n", "0000000000 65535 f \n"
    for number, body in enumerate(bodies, 1):
        table += f"{len(out):010} 00000 n \n"
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    trailer = f"trailer\n<< /Size {len(bodies) + 1} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + f"xref\n0 {len(bodies) + 1}\n{table}{trailer}".encode()


def stream(entries: str, data: bytes) -> bytes:
    return f"<< {entries} /Length {len(data)} >>\nstream\n".encode() + data + b"\nendstream"


FIELD = "/Subtype /Widget /F 4 /T (a)"
FORM = "/AcroForm << /Fields [10 0 R] >>"
TEXT = f"{FIELD} /FT /Tx /V (Hello) /DA (/Helv 12 Tf 0 g)"
TICK = f"{FIELD} /FT /Btn /V /On /AS /On /MK << /CA (4) >> /DA (/ZaDb 0 Tf)"
HIGHLIGHT = "/Subtype /Highlight /C [1 1 0] /QuadPoints [20 60 120 60 20 20 120 20]"
LAYER = "/OCProperties << /OCGs [8 0 R] /D << /{} [8 0 R] >> >>"
LEFT = "1 0 0 rg 0 0 100 100 re f"
PAINT = "100 0 0 100 0 0 cm /I Do"
PIXELS = "/Type /XObject /Subtype /Image /Width 10 /Height 10 /BitsPerComponent 8 /ColorSpace /DeviceRGB"
UNKNOWN_FONT = b"<< /Type /Font /Subtype /TrueType /BaseFont /Unknown >>"
SUBSTITUTED = "text in fonts that the document lacks is drawn with others or missing: Unknown"


class Page(NamedTuple):
    """`ink`: at least this share of the page is coloured; 0: nothing is."""

    name: str
    make: Callable[[], bytes]
    ink: float
    told: str = ""


PAGES = [
    Page("field", lambda: document(annotation=f"{TEXT} /AP << /N 11 0 R >>", catalogue=FORM), 0.19),
    Page("field without appearance", lambda: document(annotation=TEXT, catalogue=FORM), 0.005),
    Page("field that no form lists", lambda: document(annotation=f"{TEXT} /AP << /N 11 0 R >>"), 0.19),
    Page("turned field", lambda: document(annotation=TEXT, catalogue=FORM, page="/Rotate 90"), 0.005),
    Page("hidden field", lambda: document(annotation=f"{TEXT} /F 2 /AP << /N 11 0 R >>", catalogue=FORM), 0),
    Page(
        "ticked box",
        lambda: document(
            annotation=f"{FIELD} /FT /Btn /V /On /AS /On /MK << /CA (4) >> /DA (/ZaDb 0 Tf)", catalogue=FORM
        ),
        0.003,
    ),
    Page(
        "XFA form",
        lambda: document(annotation=TEXT, catalogue="/AcroForm << /Fields [10 0 R] /XFA (<xdp/>) >>"),
        0.005,
        "an XFA form",
    ),
    Page("highlight", lambda: document(annotation=HIGHLIGHT), 0.19),
    Page("stamp", lambda: document(annotation="/Subtype /Stamp /AP << /N 11 0 R >>"), 0.19),
    Page(
        "stamp without appearance",
        lambda: document(annotation="/Subtype /Stamp"),
        0,
        "1 annotation without an appearance",
    ),
    Page("hidden stamp", lambda: document(annotation="/Subtype /Stamp /F 2 /AP << /N 11 0 R >>"), 0),
    Page("link", lambda: document(annotation="/Subtype /Link /Border [0 0 0]"), 0),
    Page("layer that is on", lambda: document(f"/OC /L BDC {LEFT} EMC", catalogue=LAYER.format("ON")), 0.49),
    Page("layer that is off", lambda: document(f"/OC /L BDC {LEFT} EMC", catalogue=LAYER.format("OFF")), 0),
    Page(
        "stamp on a layer that is off",
        lambda: document(annotation="/Subtype /Stamp /OC 8 0 R /AP << /N 11 0 R >>", catalogue=LAYER.format("OFF")),
        0.19,
        "even if the layer is off",
    ),
    Page("crop", lambda: document(LEFT, page="/CropBox [0 0 100 100]"), 0.99),
    Page("image", lambda: document(PAINT, image=stream(PIXELS, b"abc" * 100)), 0.49),
    Page(
        "damaged image",
        lambda: document(PAINT, image=stream(f"{PIXELS} /Filter /DCTDecode", b"garbage" * 20)),
        0,
        "damaged: 1 image of the page can't be decoded",
    ),
    Page("font of every viewer", lambda: document("BT /F1 24 Tf 10 40 Td (Hello) Tj ET"), 0.01),
    Page(
        "font that is missing",
        lambda: document(
            "BT /F1 24 Tf 10 40 Td (Hello) Tj ET",
            font=UNKNOWN_FONT,
        ),
        0.01,
        SUBSTITUTED,
    ),
    Page(
        "invisible text below a scan",
        lambda: document(f"BT 3 Tr /F1 24 Tf 10 40 Td (Hello) Tj ET {LEFT}", font=UNKNOWN_FONT),
        0.49,
    ),
    Page("end missing", lambda: document(LEFT)[:-9], 0.49, "damaged: the end of the document is missing"),
]


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_pages(page: Page, tmp_path: Path) -> None:
    row = Row(page.name, page.make, None, page.told)
    attachment = judge(row, "pdf", tmp_path, usual=("page 1 of 1", "drawn at "))
    assert attachment is not None
    ink = float((seen(attachment).min(axis=2) < 250).mean())
    assert ink >= page.ink and (ink == 0) == (page.ink == 0), ink


def clip(
    suffix: str = "mp4",
    codec: str = "libx264",
    *,
    frames: Sequence[npt.NDArray[Any]] = (CORNERS,) * 6,
    pixels: str = "yuv444p",
    matrix: str = "ITU601",
    gop: int = 12,
    **settings: Any,
) -> bytes:
    """A video of 10 frames a second. `matrix`: how its colours are coded. `settings`: of the codec context, or
    `options` of the container."""
    path = Path(tempfile.mkdtemp()) / f"clip.{suffix}"  # to put the index first, libav reads the file again
    with av.open(str(path), "w", options=settings.pop("options", {})) as container:
        stream: Any = container.add_stream(codec, rate=10, options=settings.pop("codec_options", {}))
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt, stream.codec_context.gop_size = pixels, gop
        for name, value in settings.items():
            setattr(stream.codec_context, name, value)
        for number, array in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(array, format="rgba" if array.shape[2] == 4 else "rgb24")
            frame = frame.reformat(format=pixels, dst_colorspace=matrix)
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    data = path.read_bytes()
    shutil.rmtree(path.parent)
    return data


def shown_by(a: float, b: float, c: float, d: float) -> bytes:
    """A video with this display matrix in its track's header."""
    data = clip()
    at = data.index(b"tkhd") + 44
    matrix = struct.pack(">9i", *(round(value * 65536) for value in (a, b, 0, c, d, 0, 0, 0)), 1 << 30)
    return data[:at] + matrix + data[at + len(matrix) :]


def noisy(count: int = 30) -> list[npt.NDArray[np.uint8]]:
    rng = np.random.default_rng(1)
    return [(rng.integers(0, 60, (96, 160, 3)) + number * 5).astype(np.uint8) for number in range(count)]


def long_clip(suffix: str = "mp4", codec: str = "libx264", **options: str) -> bytes:
    """Three seconds of noise, with the index at the start."""
    starts = {"movflags": "faststart"} if suffix == "mp4" else {}
    return clip(suffix, codec, frames=noisy(), pixels="yuv420p", gop=10, options=starts | options)


def cropped(width: int) -> bytes:
    """A video with a clean aperture of this width."""
    data = clip()
    index, at = data.index(b"moov") - 4, data.index(b"avcC") - 4
    box = struct.pack(">I4s8I", 40, b"clap", width, 1, 48, 1, 0, 1, 0, 1)
    data = data[:at] + box + data[at:]
    for kind in (b"avc1", b"stsd", b"stbl", b"minf", b"mdia", b"trak", b"moov"):
        start = data.index(kind, index) - 4
        data = data[:start] + struct.pack(">I", int.from_bytes(data[start : start + 4], "big") + 40) + data[start + 4 :]
    return data


def muxed(*sources: tuple[bytes, bool]) -> bytes:
    """A Matroska file of the first track of each source. True: players choose it."""
    out = io.BytesIO()
    opened = [(av.open(io.BytesIO(data), "r"), chosen) for data, chosen in sources]
    with av.open(out, "w", format="matroska") as container:
        tracks = []
        for source, chosen in opened:
            track: Any = container.add_stream_from_template(source.streams[0])
            track.disposition = av.stream.Disposition.default if chosen else 0
            tracks.append(track)
        for (source, _), track in zip(opened, tracks, strict=True):
            for packet in source.demux(source.streams[0]):
                if packet.size:
                    packet.stream = track
                    container.mux(packet)
    return out.getvalue()


def cropped_mkv() -> bytes:
    """A video whose DisplayUnit is made a PixelCropTop of 8, an element of the same length."""
    head, unit, rest = clip("mkv").rpartition(b"\x54\xb2\x81")
    assert unit
    return head + b"\x54\xbb\x81\x08" + rest[1:]


SUBTITLES = b"1\n00:00:00,000 --> 00:00:00,500\nHello\n"
MIRROR_CLIP = [CORNERS[:, ::-1]] * 6
BT2020_PQ: dict[str, Any] = {"color_primaries": 9, "color_trc": 16, "colorspace": 9}
LOST = r"damaged: at least \d+ frames? can't be decoded"
VIDEOS = {
    "mp4": [
        Row("as it is", lambda: clip(), UPRIGHT),
        Row("turned", lambda: shown_by(0, 1, -1, 0), CLOCKWISE, "turned upright"),
        Row("upside down", lambda: shown_by(-1, 0, 0, -1), UPRIGHT[::-1], "turned upright"),
        Row("mirrored", lambda: shown_by(-1, 0, 0, 1), MIRRORED, "^mirrored by its display matrix$"),
        Row("flipped", lambda: shown_by(1, 0, 0, -1), FLIPPED, "^mirrored by its display matrix$"),
        Row("turned and mirrored", lambda: shown_by(0, 1, 1, 0), TRANSPOSED, "^mirrored by its display matrix$"),
        Row(
            "turned by 10°", lambda: shown_by(0.985, 0.174, -0.174, 0.985), UPRIGHT, "its display matrix .* not applied"
        ),
        Row("sheared", lambda: shown_by(1, 0, 0.5, 1), None, "its display matrix .* not applied"),
        Row("no matrix, but zeros", lambda: shown_by(0, 0, 0, 0), UPRIGHT),
        Row("crop", lambda: cropped(32), UPRIGHT, r"its crop \(clean aperture\) not applied"),
        Row("crop to nothing less", lambda: cropped(64), UPRIGHT),
        Row("BT.709", lambda: clip(matrix="ITU709", colorspace=1), UPRIGHT),
        Row("HD without a colour matrix", lambda: clip(frames=[hd()] * 2, matrix="ITU709"), UPRIGHT),
        Row(
            "HDR", lambda: clip(matrix="BT2020", **BT2020_PQ), UPRIGHT, r"HDR \(PQ\) and BT.2020 colours taken as sRGB"
        ),
        Row(
            "interlaced",
            lambda: clip(codec_options={"x264-params": "interlaced=1"}, pixels="yuv420p"),
            None,
            "interlaced",
        ),
        Row("a zero tail", lambda: with_hole(long_clip(), 0.7, 1), None, LOST),
        Row("zeros in the last frame", lambda: with_hole(long_clip(), 0.99, 1), None, LOST),
        Row("a hole", lambda: with_hole(long_clip(), 0.4, 0.6), None, LOST),
        Row("a zero tail, HEVC", lambda: with_hole(long_clip(codec="libx265"), 0.7, 1), None, LOST),
        Row("a zero tail, AV1", lambda: with_hole(long_clip(codec="libsvtav1"), 0.7, 1), None, LOST),
        Row("a zero tail, MPEG-4", lambda: with_hole(long_clip(codec="mpeg4"), 0.7, 1), None, LOST),
        Row("a few bytes cut off", lambda: long_clip()[:-3000], None, "damaged: cut off, 3,000 bytes are missing"),
        Row("data after the end", lambda: clip() + b"a camera's trailer" * 99, UPRIGHT),
        Row("cut off", lambda: long_clip()[:-90000], REFUSED, "is cut off: its header says"),
        Row("cut in the index", lambda: clip()[:-300], REFUSED, "is cut off: 300 bytes of its index are missing"),
        Row("zeros in the index", lambda: with_hole(clip(), 0.5, 1), REFUSED, "is cut off"),
        Row(
            "fragments, cut off",
            lambda: long_clip(movflags="frag_keyframe+empty_moov")[:-3000],
            None,
            "damaged: cut off",
        ),
        Row(
            "fragments, a zero tail", lambda: with_hole(long_clip(movflags="frag_keyframe"), 0.7, 1), None, "damaged: "
        ),
    ],
    "mkv": [
        Row(
            "a few bytes cut off", lambda: long_clip("mkv")[:-9000], None, r"cut off, 9,000 .* its header says 3\.00 s"
        ),
        Row("its last bytes cut off", lambda: long_clip("mkv")[:-100], None, "damaged: cut off, 100 bytes are missing"),
        Row(
            "a zero tail",
            lambda: with_hole(long_clip("mkv"), 0.98, 1),
            None,
            "damaged: the last [0-9,]+ bytes are zeros",
        ),
    ],
    "webm": [
        Row(
            "alpha",
            lambda: clip("webm", "libvpx-vp9", frames=[HALF] * 3, pixels="yuva420p"),
            UPRIGHT,
            "its transparency not applied",
        )
    ],
    "mov": [
        Row("alpha", lambda: clip("mov", "qtrle", frames=[HALF] * 3, pixels="argb"), OVER_WHITE, "transparency over")
    ],
    "ts": [
        Row("recorded from the middle", lambda: (data := long_clip("ts"))[len(data) // 564 * 188 :], None),
        Row("a hole", lambda: with_hole(long_clip("ts"), 0.4, 0.6), None, LOST),
        Row(
            "a zero tail", lambda: with_hole(long_clip("ts"), 0.7, 1), None, "damaged: the last [0-9,]+ bytes are zeros"
        ),
    ],
}


def hd() -> npt.NDArray[np.uint8]:
    return np.asarray(corners((1280, 720)))


@pytest.mark.parametrize(("suffix", "row"), rows(VIDEOS))
def test_videos(suffix: str, row: Row, tmp_path: Path) -> None:
    judge(row, suffix, tmp_path)


TONE = (0.5 * np.sin(np.arange(48_000) / 9)).astype(np.float32)
"""Three seconds at 16,000 samples a second."""


def wav(samples: npt.NDArray[Any], *, kind: int = 3, size: int | None = None) -> bytes:
    """`samples`: `(N,)`, or `(N, channels)`."""
    bits, channels = samples.dtype.itemsize * 8, samples.shape[1] if samples.ndim > 1 else 1
    size = samples.nbytes if size is None else size
    step = channels * bits // 8
    form = struct.pack("<IHHIIHH", 16, kind, channels, 16_000, 16_000 * step, step, bits)
    start = b"RIFF" + struct.pack("<I", min(36 + size, 2**32 - 1)) + b"WAVEfmt " + form
    return start + b"data" + struct.pack("<I", size) + samples.tobytes()


def tone(*values: float) -> npt.NDArray[np.float32]:
    """The tone, with other values at its start."""
    samples = TONE.copy()
    samples[: len(values)] = values
    return samples


def encoded(kind: str, codec: str, **tags: str) -> bytes:
    out = io.BytesIO()
    with av.open(out, "w", format=kind) as container:
        stream: Any = container.add_stream(codec, rate=48_000, layout="mono")
        container.metadata.update(tags)
        rng = np.random.default_rng(2)
        samples = (np.sin(np.arange(144_000) / 20) / 2 + rng.normal(0, 0.02, 144_000)).astype(np.float32)
        resampler = av.AudioResampler(format=stream.format.name, layout="mono", rate=48_000)
        for start in range(0, len(samples), 1024):
            frame = av.AudioFrame.from_ndarray(samples[None, start : start + 1024], format="fltp", layout="mono")
            frame.rate, frame.pts = 48_000, start
            for made in resampler.resample(frame):
                container.mux(stream.encode(made))
        container.mux(stream.encode())
    return out.getvalue()


def cut(data: bytes, share: float) -> bytes:
    return data[: int(len(data) * share)]


@pytest.mark.parametrize("samples", [TONE, (TONE * 9999).astype(np.int16)], ids=["floats", "integers"])
def test_channels_that_cancel_each_other_are_told(samples: npt.NDArray[Any], tmp_path: Path) -> None:
    kind = 3 if samples.dtype == np.float32 else 1
    (tmp_path / "a.wav").write_bytes(wav(np.stack([samples, -samples], 1), kind=kind))
    (note,) = stage(tmp_path / "a.wav", tmp_path / "store").notes
    assert note == "not as in a viewer: its channels cancel each other when they are mixed into one"


def test_of_two_sounds_the_one_is_heard_that_players_choose(tmp_path: Path) -> None:
    silence = wav(np.zeros(48_000, np.int16), kind=1)
    (tmp_path / "two.mka").write_bytes(muxed((silence, False), (wav(TONE), True)))
    attachment = stage(tmp_path / "two.mka", tmp_path / "store")
    assert float(np.abs(read_sound(Path(attachment.path))).max()) > 0.4


EARLY = r"damaged: its header says 3\.\d\d s, but it ends after"
SOUNDS = {
    "wav": [
        Row("floats", lambda: wav(TONE), None),
        Row("not a number", lambda: wav(tone(np.nan, np.nan)), None, "damaged: 2 samples not a finite number"),
        Row("infinite", lambda: wav(tone(np.inf, -np.inf)), None, "damaged: 2 samples not a finite number"),
        Row("full scale is not 1", lambda: wav(TONE * 32768), None, "clipped to 1, as a player does"),
        Row("two channels", lambda: wav(np.stack([TONE, TONE * 0], 1)), None),
        Row("channels that cancel in part", lambda: wav(np.stack([TONE, TONE * -0.5], 1)), None),
        Row("cut off", lambda: wav(TONE)[:-1000], None, "damaged: cut off, 1,000 bytes are missing"),
        Row("written to a pipe", lambda: wav(TONE, size=2**32 - 1), None),
        Row("silence at the end", lambda: wav(np.concatenate([TONE, np.zeros(9999, np.float32)])), None),
    ],
    "mp3": [
        Row("whole", lambda: encoded("mp3", "libmp3lame"), None),
        Row("cut off", lambda: cut(encoded("mp3", "libmp3lame"), 0.9), None, EARLY),
        Row(
            "gain",
            lambda: encoded("mp3", "libmp3lame", REPLAYGAIN_TRACK_GAIN="-6.00 dB"),
            None,
            r"gain tag \(-6.00 dB\)",
        ),
    ],
    "flac": [
        Row("whole", lambda: encoded("flac", "flac"), None),
        Row("cut off", lambda: cut(encoded("flac", "flac"), 0.9), None, EARLY),
        Row("a hole", lambda: with_hole(encoded("flac", "flac"), 0.4, 0.5), None, EARLY),
    ],
    "m4a": [
        Row("whole", lambda: encoded("mp4", "aac"), None),
        Row(
            "a hole", lambda: with_hole(encoded("mp4", "aac"), 0.4, 0.5), None, r"damaged: \d+ packets can't be decoded"
        ),
    ],
    "ogg": [
        Row("whole", lambda: encoded("ogg", "libopus"), None),
        Row("cut off", lambda: cut(encoded("ogg", "libopus"), 0.9), None, "damaged: its end mark is missing"),
        Row(
            "a zero tail",
            lambda: with_hole(encoded("ogg", "libopus"), 0.7, 1),
            None,
            "bytes are zeros, perhaps missing",
        ),
    ],
    "mka": [
        Row("whole", lambda: encoded("matroska", "libopus"), None),
        Row("cut off", lambda: cut(encoded("matroska", "libopus"), 0.9), None, EARLY),
    ],
}


@pytest.mark.parametrize(("suffix", "row"), rows(SOUNDS))
def test_sounds(suffix: str, row: Row, tmp_path: Path) -> None:
    attachment = judge(row, suffix, tmp_path)
    assert attachment is not None and attachment.modality == "audio"
    samples = read_sound(Path(attachment.path))
    assert np.isfinite(samples).all() and 0.1 < np.abs(samples).max() <= 1
