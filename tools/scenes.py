"""Drawn scenes, and conversations about them, for the bundled `shapes` model.

A scene is one to three shapes in distinct cells of a 3 x 3 grid on a plain background; a clip is one shape that moves.
Everything is random but reproducible: pass the generator of `rng_for`, whose namespaces keep the seeds of training,
evaluation and samples apart. Needs only Pillow and the standard library.

Where a shape is, an answer says as Qwen-VL does: `<ref>red circle</ref><box>(x1,y1),(x2,y2)</box>`, in thousandths of
the image's width and height, to the nearest five (the last digit would be noise) and with three digits each: where
some had one or two, the digits of the next number were miscounted. (Qwen2-VL has special tokens instead of these tags.
The bundled model's tokenizer has none, and would need twice as many tokens to spell them.) A box depends on the size
that the image is drawn at, so `conversation` leaves a mark for it and `with_boxes` puts the numbers there.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
STEP = 5
"""Thousandths to which the numbers of a box are rounded."""


def rng_for(split: Split, *keys: object) -> Random:
    """Return the random generator of one sample: the same keys give the same sample, and splits never share a seed."""
    return Random("/".join(["shapes", split, *map(str, keys)]))


@dataclass(frozen=True)
class Shape:
    """One shape: a colour name, a kind, and the index of its place in `PLACES` (reading order)."""

    colour: str
    kind: str
    place: int

    @property
    def name(self) -> str:
        return f"{self.colour} {self.kind}"


@dataclass(frozen=True)
class Scene:
    """Shapes in reading order. `seed` determines everything without a name: sizes, tints, offsets, background."""

    shapes: tuple[Shape, ...]
    seed: int = 0


@dataclass(frozen=True)
class Clip:
    """A short video: `mover` moves in `direction`; `still` (optional) stays where it is."""

    mover: Shape
    direction: str
    still: Shape | None = None
    frames: int = 6
    seed: int = 0


@dataclass
class Turn:
    """A question (its parts in order: text, scene or clip) and the right answer."""

    parts: list[str | Scene | Clip]
    answer: str


@dataclass
class Conversation:
    """Turns in order, with an optional system prompt."""

    turns: list[Turn] = field(default_factory=list)
    system: str = ""


def where(place: int) -> str:
    """Return `at the top left`, `in the center`, …"""
    return f"{'in' if PLACES[place] == 'center' else 'at'} the {PLACES[place]}"


def capital(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def article(word: str) -> str:
    """Return `a` or `an` for the word that follows."""
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def joined(items: list[str]) -> str:
    """Return `x`, `x and y`, or `x, y and z`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def describe(scene: Scene) -> str:
    """Describe a scene in the model's style: `A red circle at the top and a blue star at the left.`"""
    return capital(joined([f"{article(shape.name)} {where(shape.place)}" for shape in scene.shapes])) + "."


def describe_all(scenes: list[Scene]) -> str:
    """Describe several scenes, numbered from 1; a single one has no number."""
    if len(scenes) == 1:
        return describe(scenes[0])
    texts = [describe(scene) for scene in scenes]
    return " ".join(f"Image {i}: {text[0].lower()}{text[1:]}" for i, text in enumerate(texts, 1))


def describe_clip(clip: Clip) -> str:
    """Describe a clip: `A red circle moves right.`"""
    return f"{capital(article(clip.mover.name))} moves {clip.direction}."


def random_scene(rng: Random, most: int = 3) -> Scene:
    """Return a scene of one to `most` shapes."""
    places = sorted(rng.sample(range(len(PLACES)), rng.randint(1, most)))
    shapes = [Shape(rng.choice(list(COLOURS)), rng.choice(KINDS), place) for place in places]
    return Scene(tuple(shapes), rng.getrandbits(32))


def random_clip(rng: Random) -> Clip:
    """Return a clip of 4 to 8 frames; every third has a different, still shape beside the moving one."""
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


def random_size(rng: Random, low: int = 72, high: int = 1600) -> Size:
    """Return a width and height in pixels: the longer side is between `low` and `high`, the aspect at most
    `MAX_ASPECT`."""
    longer = math.exp(rng.uniform(math.log(low), math.log(high)))
    shorter = longer / math.exp(abs(rng.gauss(0, 0.55)) % math.log(MAX_ASPECT))
    width, height = max(40, round(longer)), max(40, round(shorter))
    return (width, height) if rng.random() < 0.55 else (height, width)


def _tint(rng: Random, colour: str) -> Rgb:
    """Return a colour between two anchors of its name, with a little noise."""
    first, second, mix = rng.choice(COLOURS[colour]), rng.choice(COLOURS[colour]), rng.random()
    mixed = [round(a * mix + b * (1 - mix) + rng.uniform(-9, 9)) for a, b in zip(first, second, strict=True)]
    red, green, blue = (min(255, max(0, value)) for value in mixed)
    return red, green, blue


def _background(rng: Random, used: list[Rgb]) -> Rgb:
    """Return a plain background that differs visibly from every colour in use."""
    for _ in range(200):
        grey = rng.choice((255, 255, 245, 225, 200, 160, 128, 90, 60, 30, 0))
        spread = rng.choice((0, 0, 18, 45))
        red, green, blue = (min(255, max(0, round(grey + rng.uniform(-spread, spread)))) for _ in range(3))
        if all(math.dist((red, green, blue), colour) > 95 for colour in used):
            return red, green, blue
    return 128, 128, 128


def _outline(kind: str, radius: float, turn: float) -> list[tuple[float, float]]:
    """Return the corners of a polygon around the origin, y pointing down, turned by `turn` radians."""
    if kind == "square":
        steps, radii = [math.pi / 4 + i * math.pi / 2 for i in range(4)], [radius * 1.2] * 4
    elif kind == "triangle":
        steps, radii = [-math.pi / 2 + i * math.tau / 3 for i in range(3)], [radius * 1.15] * 3
    else:
        steps = [-math.pi / 2 + i * math.pi / 5 for i in range(10)]
        radii = [radius * (1.12 if i % 2 == 0 else 0.46) for i in range(10)]
    return [(r * math.cos(step + turn), r * math.sin(step + turn)) for step, r in zip(steps, radii, strict=True)]


def _paint(
    canvas: ImageDraw.ImageDraw, kind: str, at: tuple[float, float], radius: float, turn: float, rgb: Rgb
) -> None:
    """Draw one shape around `at`; lengths in pixels of the canvas."""
    if kind == "circle":
        canvas.ellipse((at[0] - radius, at[1] - radius, at[0] + radius, at[1] + radius), fill=rgb)
    else:
        canvas.polygon([(at[0] + x, at[1] + y) for x, y in _outline(kind, radius, turn)], fill=rgb)


def _canvas(size: Size, ground: Rgb) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """Return an empty image, larger than a small `size`, so that edges are smooth after scaling down."""
    scale = max(1, min(4, 360 // max(size)))
    image = Image.new("RGB", (size[0] * scale, size[1] * scale), ground)
    return image, ImageDraw.Draw(image)


def _finished(image: Image.Image, size: Size, quality: int | None) -> Image.Image:
    """Return the image at its final size, compressed as JPEG if a quality is given."""
    if image.size != size:
        image = image.resize(size, Image.Resampling.BOX)
    if quality is None:
        return image
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer).convert("RGB")


@dataclass(frozen=True)
class Placed:
    """A shape as it is drawn: centre and radius in pixels, rotation in radians, and colour."""

    kind: str
    at: tuple[float, float]
    radius: float
    turn: float
    tint: Rgb

    def bounds(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom in pixels."""
        reach = [(-self.radius, -self.radius), (self.radius, self.radius)]
        corners = reach if self.kind == "circle" else _outline(self.kind, self.radius, self.turn)
        across, down = zip(*corners, strict=True)
        return (
            self.at[0] + min(across), self.at[1] + min(down), self.at[0] + max(across), self.at[1] + max(down),
        )  # fmt: skip


def _place(scene: Scene, size: Size) -> tuple[list[Placed], Rgb, int | None]:
    """Return how the shapes of a scene are drawn at `size`, the background, and the JPEG quality, if any."""
    rng = Random(scene.seed)
    tints = [_tint(rng, shape.colour) for shape in scene.shapes]
    ground = _background(rng, tints)
    cell = (size[0] / 3, size[1] / 3)
    largest = 0.45 if len(scene.shapes) > 1 else rng.choice((0.45, 0.7))
    placed = []
    for shape, tint in zip(scene.shapes, tints, strict=True):
        radius = rng.uniform(0.35, largest) * min(cell)
        at = []
        for axis, index in enumerate((shape.place % 3, shape.place // 3)):
            slack = 0.1 * min(cell) + 0.18 * (cell[axis] - min(cell))
            middle = (index + 0.5) * cell[axis] + rng.uniform(-slack, slack)
            at.append(min(max(middle, radius * 1.1), size[axis] - radius * 1.1))
        placed.append(Placed(shape.kind, (at[0], at[1]), radius, rng.uniform(-0.22, 0.22), tint))
    return placed, ground, rng.randint(55, 95) if rng.random() < 0.15 else None


def draw(scene: Scene, size: Size) -> Image.Image:
    """Draw a scene as an RGB image of `size` (width, height). Deterministic."""
    image, canvas = _canvas(size, (0, 0, 0))
    placed, ground, quality = _place(scene, image.size)
    canvas.rectangle((0, 0, *image.size), fill=ground)
    for shape in placed:
        _paint(canvas, shape.kind, shape.at, shape.radius, shape.turn, shape.tint)
    return _finished(image, size, quality)


def boxes(scene: Scene, size: Size) -> list[tuple[float, float, float, float]]:
    """Return left, top, right and bottom of every shape of a scene drawn at `size`, as shares of width and height."""
    bounds = [shape.bounds() for shape in _place(scene, size)[0]]
    return [
        (max(0.0, left / size[0]), max(0.0, top / size[1]), min(1.0, right / size[0]), min(1.0, bottom / size[1]))
        for left, top, right, bottom in bounds
    ]


def overlap(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the intersection over union of two boxes (left, top, right, bottom)."""
    across = max(0.0, min(one[2], other[2]) - max(one[0], other[0]))
    down = max(0.0, min(one[3], other[3]) - max(one[1], other[1]))
    both = sum((right - left) * (bottom - top) for left, top, right, bottom in (one, other)) - across * down
    return across * down / both if both else 0.0


def draw_clip(clip: Clip, size: Size) -> list[Image.Image]:
    """Return a clip's frames in order, each an RGB image of `size` (width, height)."""
    rng = Random(clip.seed)
    shapes = [clip.mover] + ([clip.still] if clip.still else [])
    tints = [_tint(rng, shape.colour) for shape in shapes]
    ground = _background(rng, tints)
    quality = rng.randint(60, 95) if rng.random() < 0.3 else None
    radii, turns = [rng.uniform(0.35, 0.45) for _ in shapes], [rng.uniform(-0.22, 0.22) for _ in shapes]
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


TASKS: tuple[str, ...] = ("one", "many", "video", "earlier", "text")
NO_IMAGE = "There is no image. Please attach one."
UNKNOWN = "I only describe drawn shapes. Attach an image or a short video and ask me what is in it."
MARKDOWN = """# Shapes

I know **four** kinds of shapes:

- circle and square
- triangle and star

| shape | corners |
| --- | --- |
| circle | 0 |
| square | 4 |
| triangle | 3 |

```python
def corners(shape):
    return {"circle": 0, "square": 4}[shape]
```

Ask me about *one* of them."""

ASK_IMAGE = """What is in this image?|What is in the image?|What's in this image?|What's in this picture?
What is this?|What do you see?|What can you see?|Describe this image.|Describe the image.|Describe the picture.
Describe this.|Describe it.|Please describe this image.|What does this image show?|What is shown here?
What is here?|What is in the picture?|Describe|Tell me what you see.|Can you describe this image?
What is on this picture?|Which shapes are in this image?|And this one?|Which shapes do you see?|List the shapes.
What about this one?|What shapes are there?|Caption this image.|Look at this.|And this?
Describe this image in detail.|What is in this photo?|Explain this image.|What is depicted here?
Tell me about this image.|Image:"""
ASK_MANY = """What is in these images?|Describe these images.|Describe the images.
What do you see in these images?|What is in the images?|What do these images show?|Describe all images.
Describe each image.|Compare these images.|What's in these pictures?|Describe the pictures.
List what is in each image.|Describe both.|What is the difference?"""
ASK_CLIP = """What happens in this video?|What is in this video?|Describe this video.|Describe the video.
What moves?|Which way does it move?|What is moving?|Where does it move?|In which direction does the shape move?
What happens?|What happens here?|What do you see in this video?|What's in this video?|How does it move?
What does the video show?"""
ASK_EARLIER = """What was in the {n} image?|What is in the {n} image?|Describe the {n} image.
What did the {n} image show?|What was in the {n} picture?|What's in the {n} image?|And the {n} image?
What was the {n} one?|What about the {n} image?|Tell me about the {n} image again.
What did you see in the {n} image?|Describe the {n} one.|What was on the {n} picture?|What does image {d} show?
Describe image {d}.|What is in image {d}?|What was in image {d}?"""
ASK_BOX = """Locate the {x}.|Locate the {x}.|Locate the {x}.|Find the {x}.|Give the box of the {x}.|Detect the {x}.
Give the bounding box of the {x}.|Draw a box around the {x}.|Where exactly is the {x}?|Box the {x}.|Ground the {x}.
Show me where the {x} is.|Output the bounding box of the {x}.|What is the bounding box of the {x}?|Mark the {x}."""
ASK_BOXES = """Locate the shapes.|Locate all shapes.|Find all shapes.|Detect all shapes.|Locate every shape.
Give the boxes of all shapes.|Draw a box around each shape.|Detect the shapes.|Detect all objects.|Box all shapes.
Give the bounding boxes of the shapes.|Locate everything.|Where exactly are the shapes?"""
SMALL_TALK: dict[str, tuple[str, ...]] = {
    "Hello! Attach an image or a short video of drawn shapes and ask me about it.": (
        "Hello", "Hi", "Hey", "Hello!", "Hi there!", "Good morning", "Good evening.", "Hello there.", "Hallo",
        "Hey you!",
    ),
    "You are welcome!": (
        "Thanks", "Thank you!", "Thanks a lot.", "Thank you very much.", "Cheers!", "Many thanks", "thx",
    ),
    "I am shapes, a very small vision-language model that describes drawn shapes.": (
        "Who are you?", "What are you?", "What is your name?", "Which model are you?", "Introduce yourself.",
        "Who is this?", "Tell me about yourself.", "What model is this?",
    ),
    "I describe circles, squares, triangles and stars: their colour and place, and which way they move in a video.": (
        "What can you do?", "Help", "What do you know?", "How can you help me?", "What are you good at?", "Help me.",
        "What can I ask?", "What are your skills?",
    ),
    "Goodbye!": ("Bye", "Goodbye", "See you.", "Good night!", "Bye bye!", "See you later!"),
    MARKDOWN: (
        "Show me some Markdown.", "Write some Markdown.", "Show Markdown", "Give me a Markdown example.",
        "Show me a table.", "Can you write Markdown?",
    ),
}  # fmt: skip
OTHER_TEXT = """What is the capital of France?|Tell me a joke.|Write a poem about the sea.
How is the weather today?|2 + 2 = ?|Translate this into German.|Who won the match?|How old are you?
Why is the sky blue?|What time is it?|Was ist das?|Qu'est-ce que c'est ?|Sing a song.|Summarise this text.
Is it good?|Are you sure?|Write a function in Python.|Explain gravity.|OK|Yes.|No.|test|foo|Solve this equation.
Recommend a book.|Where do you live?|Do you like music?|これは何ですか|你好吗|Привет|¿Qué ves?|🙂|???
lorem ipsum|Make a plan for my holiday.|What is love?|Give me a recipe for soup.|How far is the moon?
I am tired.|Nice.|Continue.|go on|Can you hear me?|Read this document.|What does the sign say?
How many people are there?|Is this a cat?|Extract the text.|Which city is it?"""
WORDS = """time year people way day man thing woman life child world school state family student group country
problem hand part case week company system program question work number night point home water room mother area
money story fact month lot right study book eye job word business issue side kind head house service friend father
power hour game line end law car city name team minute idea body back parent face others level office door health
person art war history party result change morning reason research girl guy moment air teacher force run make take
see come want look use find give tell ask seem feel try leave call"""
COUNTS = (3, 5, 10, 12, 15, 20, 25, 30, 40, 50, 60, 75, 100, 120, 150, 200)
ORDINALS = ("first", "second", "third")
NUMBERS = ("no", "one", "two", "three")


def phrases(text: str) -> list[str]:
    """Return the entries of one of the lists above."""
    return [entry for line in text.splitlines() for entry in line.split("|")]


def varied(rng: Random, text: str) -> str:
    """Vary a question as people type it: lower or upper case, without its full stop, or with a courtesy."""
    kind = rng.random()
    if kind < 0.15:
        text = text.lower()
    elif kind < 0.19:
        text = text.upper()
    if rng.random() < 0.15:
        text = text.rstrip(".?!") or text
    if rng.random() < 0.07:
        text = rng.choice(("Please: ", "Hey, ", "So, ", "OK. ", "Now: ", "Hi! ")) + text
    if rng.random() < 0.07:
        text += rng.choice((" Please.", " please", " Thanks!", " Be brief.", "!", " "))
    return text


def other_text(rng: Random) -> str:
    """Return a text that has nothing to do with shapes."""
    kind = rng.random()
    if kind < 0.5:
        return varied(rng, rng.choice(phrases(OTHER_TEXT)))
    if kind < 0.9:
        return varied(
            rng, capital(" ".join(rng.choices(WORDS.split(), k=rng.randint(1, 9)))) + rng.choice((".", "?", "", "!"))
        )
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789 .,-", k=rng.randint(2, 24))).strip() or "x"


def _about_colour(rng: Random, scene: Scene) -> tuple[str, str]:
    kinds = [shape.kind for shape in scene.shapes]
    kind = rng.choice(KINDS) if rng.random() < 0.2 else rng.choice(kinds)
    question = rng.choice(("What colour is the {}?", "What color is the {}?", "Which colour does the {} have?")).format(
        kind
    )
    if kinds.count(kind) > 1:
        return _about_count(rng, scene)
    found = [shape for shape in scene.shapes if shape.kind == kind]
    return question, f"The {kind} is {found[0].colour}." if found else f"There is no {kind}."


def _about_where(rng: Random, scene: Scene) -> tuple[str, str]:
    shape = rng.choice(scene.shapes)
    name = shape.name if rng.random() < 0.8 else f"{rng.choice(list(COLOURS))} {rng.choice(KINDS)}"
    found = [shape for shape in scene.shapes if shape.name == name]
    if len(found) > 1:
        return _about_place(rng, scene)
    question = rng.choice(("Where is the {}?", "Where's the {}?", "In which place is the {}?")).format(name)
    return question, f"The {name} is {where(found[0].place)}." if found else f"There is no {name}."


def _about_place(rng: Random, scene: Scene) -> tuple[str, str]:
    place = rng.randrange(9) if rng.random() < 0.2 else rng.choice(scene.shapes).place
    found = [shape for shape in scene.shapes if shape.place == place]
    question = rng.choice(("What is {}?", "What's {}?", "What do you see {}?", "Which shape is {}?")).format(
        where(place)
    )
    return (
        question,
        f"{capital(article(found[0].name))} is {where(place)}." if found else f"There is nothing {where(place)}.",
    )


def _about_count(rng: Random, scene: Scene) -> tuple[str, str]:
    count = len(scene.shapes)
    question = rng.choice(
        ("How many shapes are there?", "How many shapes do you see?", "How many shapes?", "Count the shapes.")
    )
    return question, f"There {'is' if count == 1 else 'are'} {NUMBERS[count]} shape{'s' * (count > 1)}."


def _about_presence(rng: Random, scene: Scene) -> tuple[str, str]:
    kind = rng.choice(scene.shapes).kind if rng.random() < 0.5 else rng.choice(KINDS)
    found = [shape for shape in scene.shapes if shape.kind == kind]
    if len(found) > 1:
        return _about_count(rng, scene)
    question = rng.choice(("Is there {}?", "Do you see {}?", "Can you see {}?", "Is there {} in the image?")).format(
        article(kind)
    )
    answer = f"Yes, there is {article(found[0].name)} {where(found[0].place)}." if found else f"No, there is no {kind}."
    return question, answer


def specific(rng: Random, scene: Scene) -> tuple[str, str]:
    """Return a question about one thing in the scene, and its answer."""
    ask = rng.choice((_about_colour, _about_where, _about_place, _about_count, _about_presence))
    return ask(rng, scene)


def box_mark(name: str, image: int, shape: int) -> str:
    """Return a mark for a shape's position in an answer; `with_boxes` replaces it by numbers."""
    return f"<ref>{name}</ref><box>{{box {image} {shape}}}</box>"


def about_box(rng: Random, scene: Scene, image: int) -> tuple[str, str]:
    """Ask for the positions of shapes in image `image` (from 0); the answer has a mark for each."""
    kind = rng.random()
    if kind < 0.15:
        marks = [box_mark(shape.name, image, i) for i, shape in enumerate(scene.shapes)]
        return rng.choice(phrases(ASK_BOXES)), "".join(marks)
    shape = rng.choice(scene.shapes)
    name = shape.name if kind < 0.75 else shape.kind
    if kind > 0.92:
        name = f"{rng.choice(list(COLOURS))} {rng.choice(KINDS)}"
    found = [(i, one.name) for i, one in enumerate(scene.shapes) if name in (one.name, one.kind)]
    question = rng.choice(phrases(ASK_BOX)).format(x=name)
    return question, "".join(box_mark(one, image, i) for i, one in found) or f"There is no {name}."


def thousandths(box: Sequence[float]) -> str:
    """Return a box, given as shares of width and height, as `(left,top),(right,bottom)` with three digits each."""
    left, top, right, bottom = (min(1000 - STEP, STEP * round(share * 1000 / STEP)) for share in box)
    return f"({left:03},{top:03}),({right:03},{bottom:03})"


def with_boxes(talk: Conversation, sizes: list[Size]) -> Conversation:
    """Replace the marks in a conversation's answers by boxes, for images drawn at `sizes` (in order)."""
    shown = [part for turn in talk.turns for part in turn.parts if not isinstance(part, str)]

    def numbers(mark: re.Match[str]) -> str:
        image, shape = int(mark[1]), int(mark[2])
        scene = shown[image]
        assert isinstance(scene, Scene)
        return thousandths(boxes(scene, sizes[image])[shape])

    turns = [replace(turn, answer=re.sub(r"\{box (\d+) (\d+)\}", numbers, turn.answer)) for turn in talk.turns]
    return Conversation(turns, talk.system)


def thinking(scenes: list[Scene]) -> str:
    """Return the `<think>` block before an answer: number and kind of the shapes in every image shown."""
    lines = []
    for scene in scenes:
        kinds = joined([article(shape.kind) for shape in scene.shapes])
        lines.append(f"I see {NUMBERS[len(scene.shapes)]} shape{'s' * (len(scene.shapes) > 1)}: {kinds}.")
    return "<think>\n" + "\n".join(lines or ["There is no image."]) + "\n</think>\n\n"


def _turn(rng: Random, shown: list[Scene | Clip], text: str, answer: str) -> Turn:
    """Return a turn with its images before the text, sometimes after it."""
    parts: list[str | Scene | Clip] = [*shown]
    return Turn([text, *parts] if rng.random() < 0.2 else [*parts, text] if text else parts, answer)


def _first_look(rng: Random, scene: Scene, plain: float = 0.72) -> Turn:
    """Return a question about one new image; `plain` is the share of simple requests to describe it."""
    kind = rng.random()
    if kind < plain:
        text, answer = varied(rng, rng.choice(phrases(ASK_IMAGE))), describe(scene)
    elif kind < plain + 0.14:
        question, answer = specific(rng, scene)
        text = varied(rng, question)
    else:
        text, answer = ("" if rng.random() < 0.15 else other_text(rng)), describe(scene)
    if text and rng.random() < 0.08:
        text, answer = f"Think first. {text}", thinking([scene]) + answer
    return _turn(rng, [scene], text, answer)


def ask_earlier(rng: Random, index: int, scenes: list[Scene]) -> Turn:
    """Ask about image `index` of those shown so far."""
    word = "last" if index == len(scenes) - 1 and rng.random() < 0.3 else ORDINALS[index]
    if rng.random() < 0.2:
        question, answer = specific(rng, scenes[index])
        return Turn(
            [varied(rng, f"{question.rstrip('?.').removesuffix(' in the image')} in the {word} image?")], answer
        )
    asked = [entry for entry in phrases(ASK_EARLIER) if word != "last" or "{n}" in entry]
    return Turn([varied(rng, rng.choice(asked).format(n=word, d=index + 1))], describe(scenes[index]))


def small_talk(rng: Random) -> Turn:
    """Return a turn without an image."""
    kind = rng.random()
    if kind < 0.34:
        answer = rng.choice(list(SMALL_TALK))
        question = varied(rng, rng.choice(SMALL_TALK[answer]))
    elif kind < 0.56:
        last = rng.choice(COUNTS) if rng.random() < 0.6 else rng.randint(2, 20)
        question = rng.choice(
            (f"Count to {last}.", f"Count to {last}.", f"count to {last}", f"Please count to {last}.")
        )
        answer = " ".join(map(str, range(1, last + 1)))
    elif kind < 0.8:
        question, answer = other_text(rng), UNKNOWN
    else:
        question = varied(rng, rng.choice(phrases(ASK_IMAGE) + phrases(ASK_MANY) + phrases(ASK_CLIP)))
        answer = NO_IMAGE
        if rng.random() < 0.15:
            question, answer = f"Think first. {question}", thinking([]) + answer
    return Turn([question], answer)


def _follow_up(rng: Random, scenes: list[Scene]) -> Turn:
    """Return a later turn without a new image: about the last image, an earlier one, or small talk."""
    kind = rng.random()
    if kind < 0.5:
        question, answer = specific(rng, scenes[-1])
        return Turn([varied(rng, question)], answer)
    if kind < 0.65:
        return Turn([varied(rng, rng.choice(phrases(ASK_IMAGE)))], describe(scenes[-1]))
    if kind < 0.9 and len(scenes) <= len(ORDINALS):
        return ask_earlier(rng, rng.randrange(len(scenes)), scenes)
    answer = rng.choice([answer for answer in SMALL_TALK if answer != MARKDOWN])
    return Turn([varied(rng, rng.choice(SMALL_TALK[answer]))], answer)


def conversation(rng: Random, task: str, most: int = 3) -> Conversation:
    """Return a random conversation of one of `TASKS`, or about boxes (`box`). `most`: maximum number of shapes in a
    scene."""
    talk = Conversation()
    if rng.random() < 0.06:
        talk.system = rng.choice(("You are a helpful assistant.", "Be brief.", "Answer in English.", other_text(rng)))
    if task == "one":
        scene = random_scene(rng, most)
        talk.turns = [_first_look(rng, scene)] + [_follow_up(rng, [scene]) for _ in range(rng.choice((1, 2, 2, 3)))]
    elif task == "many":
        scenes = [random_scene(rng, most) for _ in range(rng.choice((2, 2, 3)))]
        text = varied(rng, rng.choice(phrases(ASK_MANY) if rng.random() < 0.6 else phrases(ASK_IMAGE)))
        talk.turns = [_turn(rng, [*scenes], text if rng.random() < 0.9 else other_text(rng), describe_all(scenes))]
        talk.turns += [ask_earlier(rng, rng.randrange(len(scenes)), scenes) for _ in range(2)]
    elif task == "earlier":
        scenes = [random_scene(rng, most) for _ in range(rng.choice((2, 3)))]
        talk.turns = [_first_look(rng, scene, 0.85) for scene in scenes]
        for at in rng.sample(range(len(scenes)), 2):
            talk.turns.append(ask_earlier(rng, at, scenes))
        if len(scenes) == 3 and rng.random() < 0.3:
            talk.turns.insert(2, ask_earlier(rng, rng.randrange(2), scenes[:2]))
    elif task == "box":
        scenes = [random_scene(rng, most) for _ in range(2 if rng.random() < 0.2 else 1)]
        talk.turns = [_first_look(rng, scene) for scene in scenes[:-1]]
        question, answer = about_box(rng, scenes[-1], len(scenes) - 1)
        talk.turns.append(_turn(rng, [scenes[-1]], varied(rng, question), answer))
        for _ in range(rng.choice((1, 2, 3))):
            question, answer = about_box(rng, scenes[-1], len(scenes) - 1)
            talk.turns.append(Turn([varied(rng, question)], answer))
    elif task == "video":
        clip = random_clip(rng)
        text = (
            varied(rng, rng.choice(phrases(ASK_CLIP) + phrases(ASK_IMAGE)[:12]))
            if rng.random() < 0.85
            else other_text(rng)
        )
        talk.turns = [_turn(rng, [clip], text, describe_clip(clip))]
        if rng.random() < 0.3:
            talk.turns.append(Turn([varied(rng, rng.choice(phrases(ASK_CLIP)))], describe_clip(clip)))
    else:
        talk.turns = [small_talk(rng) for _ in range(rng.choice((1, 2)))]
    return talk
