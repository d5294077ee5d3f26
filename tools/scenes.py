"""Drawn scenes, and conversations about them, for the bundled `shapes` model.

A scene is one to three shapes in distinct cells of a 3 x 3 grid on a plain background; a clip is one shape that moves.
Everything is random but reproducible: pass the generator of `rng_for`, whose namespaces keep the seeds of training,
evaluation and samples apart. Needs only Pillow and the standard library.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from PIL import Image, ImageDraw

Rgb = tuple[int, int, int]
Size = tuple[int, int]
Split = Literal["train", "eval", "sample"]

COLOURS: dict[str, tuple[Rgb, ...]] = {
    "red": ((255, 0, 0), (215, 40, 40)),
    "green": ((0, 128, 0), (45, 170, 65), (0, 215, 20)),
    "blue": ((0, 0, 255), (40, 85, 215)),
    "yellow": ((255, 255, 0), (242, 214, 50)),
    "orange": ((255, 160, 0), (242, 125, 30)),
    "purple": ((128, 0, 128), (135, 60, 175)),
    "black": ((0, 0, 0), (30, 30, 32)),
    "white": ((255, 255, 255), (236, 236, 238)),
}
KINDS: tuple[str, ...] = ("circle", "square", "triangle", "star")
PLACES: tuple[str, ...] = (
    "top left", "top", "top right", "left", "center", "right", "bottom left", "bottom", "bottom right",
)  # fmt: skip
DIRECTIONS: dict[str, tuple[int, int]] = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
MAX_ASPECT = 4.0


def rng_for(split: Split, *keys: object) -> Random:
    """A generator for one sample; the same keys give the same sample, and splits never share a seed."""
    return Random("/".join(["shapes", split, *map(str, keys)]))


@dataclass(frozen=True)
class Shape:
    """One shape: a colour name, a kind and the index of its place in `PLACES` (reading order)."""

    colour: str
    kind: str
    place: int

    @property
    def name(self) -> str:
        return f"{self.colour} {self.kind}"


@dataclass(frozen=True)
class Scene:
    """Shapes in reading order. `seed` fixes everything that has no name: sizes, tints, offsets, background."""

    shapes: tuple[Shape, ...]
    seed: int = 0


@dataclass(frozen=True)
class Clip:
    """A short video: `mover` moves in `direction`, `still` (if any) stays where it is."""

    mover: Shape
    direction: str
    still: Shape | None = None
    frames: int = 6
    seed: int = 0


@dataclass
class Turn:
    """One question (its parts in order: text, or the scene or clip shown there) and the wanted answer."""

    parts: list[str | Scene | Clip]
    answer: str


@dataclass
class Conversation:
    """Turns in order, with an optional system prompt."""

    turns: list[Turn] = field(default_factory=list)
    system: str = ""


def where(place: int) -> str:
    """`at the top left`, `in the center`, ..."""
    return f"{'in' if PLACES[place] == 'center' else 'at'} the {PLACES[place]}"


def capital(text: str) -> str:
    """The text with a capital first letter, the rest untouched."""
    return text[:1].upper() + text[1:]


def article(word: str) -> str:
    """`a` or `an`, as the word that follows wants it."""
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def joined(items: list[str]) -> str:
    """`x`, `x and y`, `x, y and z`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def describe(scene: Scene) -> str:
    """The scene in the model's one style, for instance `A red circle at the top and a blue star at the left.`"""
    return capital(joined([f"{article(shape.name)} {where(shape.place)}" for shape in scene.shapes])) + "."


def describe_all(scenes: list[Scene]) -> str:
    """Several scenes, numbered from 1; a single one is described without a number."""
    if len(scenes) == 1:
        return describe(scenes[0])
    texts = [describe(scene) for scene in scenes]
    return " ".join(f"Image {i}: {text[0].lower()}{text[1:]}" for i, text in enumerate(texts, 1))


def describe_clip(clip: Clip) -> str:
    """The answer for a clip, for instance `A red circle moves right.`"""
    return f"{capital(article(clip.mover.name))} moves {clip.direction}."


def random_scene(rng: Random, most: int = 3) -> Scene:
    """A scene of one to `most` shapes."""
    places = sorted(rng.sample(range(len(PLACES)), rng.randint(1, most)))
    shapes = [Shape(rng.choice(list(COLOURS)), rng.choice(KINDS), place) for place in places]
    return Scene(tuple(shapes), rng.getrandbits(32))


def random_clip(rng: Random) -> Clip:
    """A clip of 4 to 8 frames; one in three has a still shape of another look beside the moving one."""
    direction = rng.choice(list(DIRECTIONS))
    lane = rng.randrange(3)
    across = direction in ("left", "right")
    mover = Shape(rng.choice(list(COLOURS)), rng.choice(KINDS), lane * 3 + 1 if across else 3 + lane)
    still = None
    if rng.random() < 0.35:
        free = [place for place in range(9) if (place // 3 if across else place % 3) != lane]
        colour = rng.choice([colour for colour in COLOURS if colour != mover.colour])
        still = Shape(colour, rng.choice([kind for kind in KINDS if kind != mover.kind]), rng.choice(free))
    return Clip(mover, direction, still, rng.randint(4, 8), rng.getrandbits(32))


def random_size(rng: Random, low: int = 56, high: int = 1600) -> Size:
    """A width and height in pixels: the longer side is between `low` and `high`, the aspect at most `MAX_ASPECT`."""
    longer = math.exp(rng.uniform(math.log(low), math.log(high)))
    shorter = longer / math.exp(abs(rng.gauss(0, 0.55)) % math.log(MAX_ASPECT))
    width, height = max(28, round(longer)), max(28, round(shorter))
    return (width, height) if rng.random() < 0.55 else (height, width)


def _tint(rng: Random, colour: str) -> Rgb:
    """A colour between two anchors of the name, with a little noise."""
    first, second, mix = rng.choice(COLOURS[colour]), rng.choice(COLOURS[colour]), rng.random()
    mixed = [round(a * mix + b * (1 - mix) + rng.uniform(-9, 9)) for a, b in zip(first, second, strict=True)]
    red, green, blue = (min(255, max(0, value)) for value in mixed)
    return red, green, blue


def _background(rng: Random, used: list[Rgb]) -> Rgb:
    """A plain background that differs visibly from every colour in use."""
    for _ in range(200):
        grey = rng.choice((255, 255, 245, 225, 200, 160, 128, 90, 60, 30, 0))
        spread = rng.choice((0, 0, 18, 45))
        red, green, blue = (min(255, max(0, round(grey + rng.uniform(-spread, spread)))) for _ in range(3))
        if all(math.dist((red, green, blue), colour) > 95 for colour in used):
            return red, green, blue
    return 128, 128, 128


def _outline(kind: str, radius: float, turn: float) -> list[tuple[float, float]]:
    """Corner points of a polygon around the origin, y pointing down, turned by `turn` radians."""
    if kind == "square":
        steps, radii = [math.pi / 4 + i * math.pi / 2 for i in range(4)], [radius * 1.2] * 4
    elif kind == "triangle":
        steps, radii = [-math.pi / 2 + i * math.tau / 3 for i in range(3)], [radius * 1.15] * 3
    else:
        steps = [-math.pi / 2 + i * math.pi / 5 for i in range(10)]
        radii = [radius * (1.12 if i % 2 == 0 else 0.46) for i in range(10)]
    return [(r * math.cos(step + turn), r * math.sin(step + turn)) for step, r in zip(steps, radii, strict=True)]


def _paint(canvas: ImageDraw.ImageDraw, kind: str, at: tuple[float, float], radius: float, turn: float, rgb: Rgb) -> None:
    """Draws one shape around `at`, all lengths in pixels of the canvas."""
    if kind == "circle":
        canvas.ellipse((at[0] - radius, at[1] - radius, at[0] + radius, at[1] + radius), fill=rgb)
    else:
        canvas.polygon([(at[0] + x, at[1] + y) for x, y in _outline(kind, radius, turn)], fill=rgb)


def _canvas(size: Size, ground: Rgb) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """An empty picture, larger than `size` where that is small, so that edges come out smooth."""
    scale = max(1, min(4, 360 // max(size)))
    image = Image.new("RGB", (size[0] * scale, size[1] * scale), ground)
    return image, ImageDraw.Draw(image)


def _finished(image: Image.Image, size: Size, quality: int | None) -> Image.Image:
    """The picture at its wanted size, through JPEG where a quality is given."""
    if image.size != size:
        image = image.resize(size, Image.Resampling.BOX)
    if quality is None:
        return image
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer).convert("RGB")


def draw(scene: Scene, size: Size) -> Image.Image:
    """The scene as an RGB picture of `size` (width, height); the same scene gives the same picture."""
    rng = Random(scene.seed)
    tints = [_tint(rng, shape.colour) for shape in scene.shapes]
    image, canvas = _canvas(size, _background(rng, tints))
    cell = (image.width / 3, image.height / 3)
    largest = 0.43 if len(scene.shapes) > 1 else rng.choice((0.43, 0.7))
    for shape, tint in zip(scene.shapes, tints, strict=True):
        radius = rng.uniform(0.3, largest) * min(cell)
        at = []
        for axis, index in enumerate((shape.place % 3, shape.place // 3)):
            slack = 0.1 * min(cell) + 0.18 * (cell[axis] - min(cell))
            middle = (index + 0.5) * cell[axis] + rng.uniform(-slack, slack)
            at.append(min(max(middle, radius * 1.1), image.size[axis] - radius * 1.1))
        _paint(canvas, shape.kind, (at[0], at[1]), radius, rng.uniform(-0.22, 0.22), tint)
    return _finished(image, size, rng.randint(55, 95) if rng.random() < 0.15 else None)


def draw_clip(clip: Clip, size: Size) -> list[Image.Image]:
    """The clip's frames in order, each an RGB picture of `size` (width, height)."""
    rng = Random(clip.seed)
    shapes = [clip.mover] + ([clip.still] if clip.still else [])
    tints = [_tint(rng, shape.colour) for shape in shapes]
    ground = _background(rng, tints)
    quality = rng.randint(60, 95) if rng.random() < 0.3 else None
    radii, turns = [rng.uniform(0.32, 0.43) for _ in shapes], [rng.uniform(-0.22, 0.22) for _ in shapes]
    offsets = [(rng.uniform(-0.08, 0.08), rng.uniform(-0.08, 0.08)) for _ in shapes]
    start, travel = rng.uniform(0.16, 0.32), rng.uniform(0.3, 0.52)
    axis, sign = (0, 1)[DIRECTIONS[clip.direction][0] == 0], sum(DIRECTIONS[clip.direction])
    frames = []
    for index in range(clip.frames):
        image, canvas = _canvas(size, ground)
        cell = (image.width / 3, image.height / 3)
        for i in reversed(range(len(shapes))):
            place = shapes[i].place
            at = [((place, place // 3)[a] % 3 + 0.5 + offsets[i][a]) * cell[a] for a in (0, 1)]
            if i == 0:
                share = start + travel * index / (clip.frames - 1)
                at[axis] = (share if sign > 0 else 1 - share) * image.size[axis]
            _paint(canvas, shapes[i].kind, (at[0], at[1]), radii[i] * min(cell), turns[i], tints[i])
        frames.append(_finished(image, size, quality))
    return frames
