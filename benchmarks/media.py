"""Staging photos and sampling a long video, against the cost of decoding.

`python -m benchmarks.media [--photos N] [--minutes M]`. Photos: in a Textual app without a terminal, the time until
twelve 12-megapixel JPEGs are attached to the composer and their thumbnails are drawn in a turn, against decoding them
once. Also the longest time for which the event loop was blocked (budget 50 ms): by the clock, and by the processor time
of its thread, which depends less on the machine's load. The median of five rounds counts. For comparison, the same is
measured for an idle loop while a thread decodes the photos. Video: sampling 16 frames by seeking, against decoding the
whole file. Thumbnails: bytes sent to the terminal, by mode.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import sys
import tempfile
import time
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import av
import numpy as np
from PIL import Image
from rich.console import Console
from rich.segment import Segment, Segments
from textual.app import App, ComposeResult

from vlmtui.domain.conversation import Media, Turn, VideoSampling
from vlmtui.media.frames import sample_frames
from vlmtui.media.stage import stage
from vlmtui.media.thumbnails import thumbnail
from vlmtui.paths import Paths
from vlmtui.session.draft import Draft
from vlmtui.session.exchange import Exchange
from vlmtui.session.generation import Answer
from vlmtui.session.prompt_history import PromptHistory
from vlmtui.ui.chat.composer import ComposerPanel
from vlmtui.ui.chat.transcript import Transcript
from vlmtui.ui.terminal.graphics import Graphics, symbol_strips
from vlmtui.ui.terminal.themes import VARIABLES

FREEZE_BUDGET_MS = 50
_ROUNDS = 5
_PHOTO = (4000, 3000)
_TICK_S = 0.001
_CELL = (10, 20)
"""Size of a terminal's cell in pixels."""


def make_photos(folder: Path, count: int) -> list[Path]:
    """Write JPEGs with smooth areas and a camera's noise, a few megabytes each."""
    random = np.random.default_rng(0)
    paths = []
    for number in range(count):
        coarse = Image.fromarray(random.integers(0, 255, (30, 40, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize(_PHOTO, Image.Resampling.BICUBIC), np.int16)
        noisy = (smooth + random.integers(-6, 6, smooth.shape)).clip(0, 255).astype(np.uint8)
        paths.append(folder / f"photo {number}.jpg")
        Image.fromarray(noisy).save(paths[-1], quality=90)
    return paths


def make_video(path: Path, minutes: int) -> None:
    """Write a video of this length. One minute is encoded, and its packets are repeated, as every group of pictures is
    closed."""
    rate = 25
    noise = np.random.default_rng(0).integers(0, 255, (180, 320, 3), dtype=np.uint8)
    shots = [
        av.VideoFrame.from_ndarray(np.roll(noise, shift * 8, axis=1), format="rgb24").reformat(format="yuv420p")
        for shift in range(rate)
    ]
    one = path.with_name("one minute.mp4")
    with av.open(str(one), "w") as container:
        stream: Any = container.add_stream("libx264", rate=rate)
        stream.width, stream.height, stream.pix_fmt = 320, 180, "yuv420p"
        stream.options = {"preset": "ultrafast", "crf": "45", "bf": "0"}
        stream.codec_context.gop_size = rate * 10
        for number in range(60 * rate):
            frame = shots[number % rate]
            frame.pts, frame.time_base = number, Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    with av.open(str(path), "w") as container:
        stream = None
        for minute in range(minutes):
            with av.open(str(one)) as source:
                template = source.streams.video[0]
                stream = stream or container.add_stream_from_template(template)
                for packet in source.demux(template):
                    if packet.dts is not None and packet.pts is not None and packet.time_base:
                        shift = round(minute * 60 / packet.time_base)
                        packet.pts, packet.dts = packet.pts + shift, packet.dts + shift
                        packet.stream = stream
                        container.mux(packet)


@dataclass
class Standstill:
    """The longest times, in seconds, for which an event loop was blocked: by the clock, and in its thread's processor
    time."""

    clock: float = 0.0
    processor: float = 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            clock, processor = time.perf_counter(), time.thread_time()
            await asyncio.sleep(_TICK_S)
            self.clock = max(self.clock, time.perf_counter() - clock - _TICK_S)
            self.processor = max(self.processor, time.thread_time() - processor)


class Photos(App[None]):
    """A composer, and above it a turn with the attachments."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.paths = Paths.below(folder)
        self.graphics = Graphics("halfcell")
        self.draft = Draft()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(VARIABLES)

    def compose(self) -> ComposeResult:
        yield Transcript(cache=self.paths.cache / "thumbnails")
        yield ComposerPanel(PromptHistory(self.paths.state / "prompts.jsonl"), self.draft, self.paths, dict)


async def stage_all(photos: list[Path], folder: Path) -> tuple[float, Standstill]:
    """Return the seconds until all thumbnails are drawn, and how long the event loop was blocked. As for a person,
    attachments first appear in the composer."""
    app, still = Photos(folder), Standstill()
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        watching = asyncio.create_task(still.watch())
        start = time.perf_counter()
        app.query_one(ComposerPanel).attach(photos)
        while len(app.draft.attachments) < len(photos):  # noqa: ASYNC110 - nobody tells when it is so
            await asyncio.sleep(_TICK_S)
        await pilot.pause()
        turn = Turn("user", tuple(Media(attachment) for attachment in app.draft.attachments))
        transcript = app.query_one(Transcript)
        transcript.append(Exchange(turn, Answer("")))
        await pilot.pause()
        while True:
            rows = [transcript.render_line(y).text for y in range(transcript.size.height)]
            if not any("▣" in row and "▀" not in above for above, row in pairwise(rows)):
                break
            await asyncio.sleep(_TICK_S)
        await pilot.pause()
        taken = time.perf_counter() - start
        watching.cancel()
    return taken, still


async def decode_beside(photos: list[Path]) -> tuple[float, Standstill]:
    """Return the seconds that a thread takes to decode the photos, and how long an otherwise idle event loop was
    blocked."""
    still = Standstill()
    watching = asyncio.create_task(still.watch())
    taken = await asyncio.to_thread(decode_photos, photos)
    watching.cancel()
    return taken, still


def bytes_to_terminal(image: Image.Image) -> dict[str, int]:
    """Return the bytes that draw a thumbnail of 32 columns, by mode."""
    from textual_image._sixel import image_to_sixels
    from textual_image.renderable.tgp import Image as KittyRenderable

    columns, rows = 32, round(32 * image.height / image.width / 2)
    small = image.resize((columns * _CELL[0], rows * _CELL[1]))
    lines = [segment for strip in symbol_strips(image, columns, rows) for segment in (*strip, Segment.line())]
    drawn = {"halfcell": Segments(lines), "kitty": KittyRenderable(image, columns, rows)}
    return {mode: _printed(what) for mode, what in drawn.items()} | {"sixel": len(image_to_sixels(small))}


def _printed(what: Any) -> int:
    written = io.StringIO()
    real, sys.__stdout__ = sys.__stdout__, written  # type: ignore[misc, assignment]
    try:
        Console(file=written, force_terminal=True, color_system="truecolor", width=120, height=40).print(what)
    finally:
        sys.__stdout__ = real  # type: ignore[misc]
    return len(written.getvalue().encode())


def decode_photos(paths: list[Path]) -> float:
    start = time.perf_counter()
    for path in paths:
        with Image.open(path) as image:
            image.load()
    return time.perf_counter() - start


def decode_video(path: Path) -> float:
    start = time.perf_counter()
    with av.open(str(path)) as container:
        container.streams.video[0].thread_type = "AUTO"
        for _ in container.decode(video=0):
            pass
    return time.perf_counter() - start


def _summary(seconds: list[float]) -> str:
    each = ", ".join(f"{one * 1000:.0f}" for one in sorted(seconds))
    return f"median {median(seconds) * 1000:.0f} ms ({each})"


def main() -> bool:
    """Return True if the event loop is within its budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=int, default=12)
    parser.add_argument("--minutes", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photos = make_photos(folder, options.photos)
        rounds = []
        for number in range(_ROUNDS):
            bare, idle = asyncio.run(decode_beside(photos))
            rounds.append((bare, idle, *asyncio.run(stage_all(photos, folder / f"round {number}"))))
        taken, bare = median(taken for *_, taken, _ in rounds), median(bare for bare, *_ in rounds)
        print(f"{options.photos} photos of 12 MP staged with thumbnails: {taken:.2f} s", end=" ")
        print(f"({taken / bare:.2f} × decoding them once, {bare:.2f} s)")
        print(f"longest standstill of the event loop in each of {_ROUNDS} rounds (budget {FREEZE_BUDGET_MS} ms)")
        clock = [still.clock for *_, still in rounds]
        print(f"  by the clock:          {_summary(clock)}")
        print(f"  of its own thread:     {_summary([still.processor for *_, still in rounds])}")
        print(f"  of an idle event loop: {_summary([idle.clock for _, idle, *_ in rounds])}")

        small = thumbnail(stage(photos[0], folder / "media"), folder / "thumbnails", (320, 240))
        sizes = bytes_to_terminal(small)
        half = sizes["halfcell"]
        told = ", ".join(f"{mode} {size / 1000:.1f} kB ({size / half:.1f} ×)" for mode, size in sizes.items())
        print(f"one thumbnail of 32 columns on its way to the terminal: {told}")

        video = folder / "long.mp4"
        make_video(video, options.minutes)
        start = time.perf_counter()
        sample_frames(video, VideoSampling(num_frames=16))
        sampled = time.perf_counter() - start
        whole = decode_video(video)
        print(f"16 frames of a {options.minutes}-minute video: {sampled:.2f} s", end=" ")
        print(f"({sampled / whole:.3f} × decoding it whole, {whole:.2f} s)")
    return median(clock) * 1000 <= FREEZE_BUDGET_MS


if __name__ == "__main__":
    sys.exit(not main())
