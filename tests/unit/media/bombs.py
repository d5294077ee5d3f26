"""Small videos and pictures that are made to cost: `python -m tests.unit.media.bombs KIND FOLDER` attaches each of them
in a process with limits of its own, and prints what became of it, a line each."""

from __future__ import annotations

import resource
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import av
import pillow_heif

from tests.unit.media.made import corners, video
from vlmtui.domain.conversation import VideoSampling
from vlmtui.errors import VlmtuiError
from vlmtui.media.frames import sample_frames
from vlmtui.media.images import open_prepared
from vlmtui.media.stage import stage

CPU_S, MEMORY = 120, 3 * 2**30
"""For all of a kind: a hang or a bomb takes more than each of them."""
Change = Callable[[bytes], bytes]
_NESTS = {b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts"}
_MANY = 2**31 - 1
pack = struct.pack


def box(kind: bytes, body: bytes) -> bytes:
    return pack(">I", len(body) + 8) + kind + body


def changed(data: bytes, changes: dict[bytes, Change]) -> bytes:
    """The file with these boxes changed; all sizes are right again."""
    out, at = b"", 0
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + size]
        body = changes[kind](body) if kind in changes else changed(body, changes) if kind in _NESTS else body
        out += box(kind, body)
        at += size
    return out


def edits(count: int) -> Change:
    return lambda _: pack(">II", 0, count) + pack(">IiI", 1, 0, 0x10000) * count


def compressed_index(real: bytes, size: int) -> bytes:
    """A QuickTime index as zlib packs it, with zeros up to `size`."""
    at = real.index(b"moov") - 4
    moov = real[at:][: struct.unpack(">I", real[at : at + 4])[0]]
    packer = zlib.compressobj(9)
    body = pack(">I4s", size, b"moov") + moov[8:] + pack(">I4s", size - len(moov), b"free")
    out = packer.compress(body) + b"".join(packer.compress(bytes(10**6)) for _ in range(size // 10**6)) + packer.flush()
    packed = box(b"cmov", box(b"dcom", b"zlib") + box(b"cmvd", pack(">I", size) + out))
    return real[:at] + box(b"moov", packed) + real[at + len(moov) :]


def mp4s(folder: Path) -> Iterator[tuple[str, bytes]]:
    real = video(folder / "real.mp4", frames=10).read_bytes()
    some = 10**8

    def one(**changes: Change) -> bytes:
        return changed(real, {kind.encode(): change for kind, change in changes.items()})

    table: Change = lambda _: pack(">IIII", 0, 1, some, 1)  # noqa: E731
    chunk: Change = lambda _: pack(">IIIII", 0, 1, 1, some, 1)  # noqa: E731
    yield "samples of one byte", one(stsz=lambda _: pack(">III", 0, 1, some), stts=table, stsc=chunk)
    yield "samples of no byte", one(stsz=lambda _: pack(">III", 0, 0, some), stts=table, stsc=chunk)
    yield "more sizes than there are", one(stsz=lambda body: body[:8] + pack(">I", _MANY) + body[12:])
    yield "more chunks than there are", one(stco=lambda body: body[:4] + pack(">I", 2**32 - 1) + body[8:])
    yield "a time for each of 2**31", one(stts=lambda _: pack(">IIII", 0, 1, _MANY, 1))
    yield "samples of days", one(stts=lambda _: pack(">IIII", 0, 1, 10, _MANY))
    yield "a chunk of 2**31", one(stsc=lambda _: pack(">IIIII", 0, 1, 1, _MANY, 1))
    yield "years", one(mvhd=lambda body: body[:16] + pack(">I", 2**32 - 1) + body[20:])
    yield "no time scale", one(mdhd=lambda body: body[:12] + pack(">I", 0) + body[16:])
    yield "65,535 by 65,535", one(stsd=lambda body: body[:40] + pack(">HH", 65535, 65535) + body[44:])
    yield "2**32 codecs", one(stsd=lambda body: body[:4] + pack(">I", 2**32 - 1) + body[8:])
    yield "an endless matrix", one(tkhd=lambda body: body[:40] + b"\xff" * 36 + body[76:])
    yield "100,000 tracks", one(moov=lambda body: body + box(b"trak", b"") * 100_000)
    yield "250,000 fragments", real + box(b"moof", box(b"mfhd", bytes(8))) * 250_000
    yield "400,000 edits", one(elst=edits(400_000))
    yield "400,000 edits and a tail", one(elst=edits(400_000)) + b"tail"
    yield "20,000 edits", one(elst=edits(20_000))
    yield "a compressed index", compressed_index(real, 10**8)


def heics(folder: Path) -> Iterator[tuple[str, bytes]]:
    pillow_heif.register_heif_opener()
    corners().save(folder / "real.heic")
    real = (folder / "real.heic").read_bytes()
    size, meta = real.index(b"ispe") + 8, real.index(b"meta") - 4
    for width, height in ((_MANY, _MANY), (30_000, 30_000), (0, 0)):
        yield f"{width} by {height}", real[:size] + pack(">II", width, height) + real[size + 8 :]
    for kind in (b"iloc", b"iinf", b"ipma", b"iprp", b"ipco", b"meta", b"hvcC", b"pitm", b"hdlr"):
        at = real.index(kind)
        for length in (0, 1, 7, 2**32 - 1):
            yield f"{kind.decode()} of {length} bytes", real[: at - 4] + pack(">I", length) + real[at:]
        yield f"{kind.decode()} of ones", real[: at + 4] + b"\xff" * 16 + real[at + 20 :]
    for long in (2**63, 2**64 - 1):
        yield f"a box of {long} bytes", real[:meta] + pack(">I4sQ", 1, b"meta", long) + real[meta + 8 :]
    for kinds in ((b"meta", b"meta"), (b"moov", b"trak"), (b"iprp", b"ipco")):
        nested = b"".join(pack(">I4sI", 12 * (50_000 - at), kinds[at % 2], 0) for at in range(50_000))
        yield f"{kinds[1].decode()} 50,000 deep", real[:meta] + nested
    item = box(b"infe", pack(">IHH4sB", 0x02000000, 1, 0, b"hvc1", 0))
    yield (
        "65,535 items",
        real[:meta] + box(b"meta", bytes(4) + box(b"iinf", bytes(4) + pack(">H", 65535) + item * 65535)),
    )


def element(name: bytes, body: bytes, size: int | None = None) -> bytes:
    return name + b"\x01" + (len(body) if size is None else size).to_bytes(7, "big") + body


def mkvs(folder: Path) -> Iterator[tuple[str, bytes]]:
    real = video(folder / "real.mkv", frames=10).read_bytes()
    segment, info, tracks, cluster = b"\x18\x53\x80\x67", b"\x15\x49\xa9\x66", b"\x16\x54\xae\x6b", b"\x1f\x43\xb6\x75"
    head, unknown = real[: real.index(segment)], b"\x01" + b"\xff" * 7
    number, kind, codec = element(b"\xd7", b"\1"), element(b"\x83", b"\1"), element(b"\x86", b"V_MPEG4/ISO/ASP")
    begin = element(b"\xe7", b"\0")

    def track(side: bytes, more: bytes = b"") -> bytes:
        sides = element(b"\xe0", element(b"\xb0", side) + element(b"\xba", side))
        return element(b"\xae", number + element(b"\x73\xc5", b"\1") + kind + codec + sides + more)

    def one(*parts: bytes, scale: bytes = b"\x0f\x42\x40", lasts: float = 1e300) -> bytes:
        facts = element(info, element(b"\x2a\xd7\xb1", scale) + element(b"\x44\x89", pack(">d", lasts)))
        return head + element(segment, facts + b"".join(parts))

    small = element(tracks, track(b"\0\0\0\x40"))
    block = element(cluster, begin + element(b"\xa3", b"\x81\0\0\x80" + bytes(20)))
    yield "2**31 by 2**31", one(element(tracks, track(b"\x7f\xff\xff\xff")), block)
    yield "1e300 s", one(small, block)
    yield "no number of seconds", one(small, block, lasts=float("nan"))
    yield "no time scale", one(small, block, scale=b"\0")
    yield "200,000 empty clusters", one(small, element(cluster, begin) * 200_000)
    yield "400,000 blocks", one(small, element(cluster, begin + element(b"\xa3", b"\x81\0\0\x80\0") * 400_000))
    yield "endless laces", one(small, element(cluster, begin + element(b"\xa3", b"\x81\0\0\x84\xff") * 200_000))
    yield "300,000 clusters without end", head + segment + unknown + (cluster + unknown) * 300_000
    yield (
        "300,000 tags deep",
        head + segment + unknown + b"\x12\x54\xc3\x67" + unknown + (b"\x67\xc8" + unknown) * 300_000,
    )
    yield "60,000 tracks", one(element(tracks, track(b"\0\0\0\x40") * 60_000))
    yield "a codec of 2**40 bytes", one(element(tracks, track(b"\0\0\0\x40", element(b"\x63\xa2", b"x", 2**40))))
    yield "a block of 2**40 bytes", one(small, element(cluster, begin + element(b"\xa3", b"\x81\0\0\x80\0", 2**40)))
    seek = element(b"\x4d\xbb", element(b"\x53\xab", b"\x11\x4d\x9b\x74") + element(b"\x53\xac", b"\0"))
    yield "an index of itself", one(element(b"\x11\x4d\x9b\x74", seek * 50_000), small)
    cue = element(
        b"\xbb", element(b"\xb3", b"\1") + element(b"\xb7", element(b"\xf7", b"\1") + element(b"\xf1", b"\0"))
    )
    yield "100,000 cues", one(small, element(b"\x1c\x53\xbb\x6b", cue * 100_000))


KINDS: dict[str, Callable[[Path], Iterator[tuple[str, bytes]]]] = {"mp4": mp4s, "heic": heics, "mkv": mkvs}


def outcome(path: Path, folder: Path) -> str:
    """Attach it and use it, as far as that goes."""
    try:
        attachment = stage(path, folder / "store")
        if attachment.modality == "video":
            sample_frames(attachment.path, VideoSampling(num_frames=8))
        else:
            open_prepared(attachment.path)
    except VlmtuiError as error:
        return f"refused: {error.message}"
    return "used"


def main(kind: str, folder: Path) -> None:
    av.logging.set_level(None)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    for name, data in KINDS[kind](folder):
        path = folder / f"bomb.{kind}"
        path.write_bytes(data)
        print(f"{name}: {outcome(path, folder)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
