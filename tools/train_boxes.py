"""Trains `boxes`, the LoRA adapter of the bundled model that answers with a shape's position.

    PYTHONPATH=src/vlmtui/worker/site python tools/train_boxes.py --cache /path/cache --checkpoint /path/boxes.pt \
        --minutes 60 --export src/vlmtui/bundled/shapes/adapters/boxes

The vision tower is not changed, so every image goes through it once: its image tokens are kept in `--cache`, which
later runs use again. (A small network that reads them finds the edges of 99.5 % of the shapes in square images with
IoU 0.8.) Training learns low-rank changes of the matrices of the text layers.

Besides the tokens of the answer, linear heads teach them, which only training uses: at every digit, all four edges are
read after two layers and after three, and what the digits before leave of the number after three, so that the last
layer only has to spell it. That layer needs steep changes for this, so it learns three times as fast. Muon halved the
heads' loss within a hundred steps of AdamW's best; a rate above 1e-3 is noise.

The shipped one took 10,700 steps in 110 minutes on two busy cores, in eleven parts between which most of this was
found out; the script has what the last parts had and was not run from beginning to end in one piece. `--resume`
goes on from the checkpoint, and the learning rate falls again.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import Qwen2VLForConditionalGeneration

import scenes
from text_layers import WIDTH, Layers
from train_shapes import Both, Grid, Maker, Student, cells_of, edges_of, grid_of

MODEL = Path(__file__).parent.parent / "src" / "vlmtui" / "bundled" / "shapes"
SHARD = 1000
"""Number of images per cache file."""
LENGTH, ANSWER = 112, 44
"""Tokens of a sequence and of its answer; the few longer conversations are replaced by others."""
DIGITS = (1.0, 0.7, 0.2)
"""Loss weights of a number's digits."""
RESTS = (1.0, 0.5, 0.1)
"""Loss weights for the head that predicts the rest of the number."""
WORDS = 0.15
"""Loss weight of the other tokens of an answer."""
SQUARE = 0.5
"""The share of square images besides those that are square by chance. Of the others, rare aspects are drawn more
often."""
HINTS = 5.0
"""Loss weight of the linear heads."""


def size_of(rng: Random) -> scenes.Size:
    """Return a size as in `tools/eval_shapes.py`, shrunk if the model sees the same."""
    if rng.random() < 0.12:
        side = rng.choice((64, 112, 128, 224, 256, 336, 448, 512))
        return side, side
    size = scenes.random_size(rng)
    shrink = min(1.0, rng.uniform(200, 420) / max(size))
    small = max(20, round(size[0] * shrink)), max(20, round(size[1] * shrink))
    return small if grid_of(small) == grid_of(size) else size


def draw_shards(folder: Path, split: scenes.Split, most: int, numbers: Sequence[int]) -> None:
    """Write the image tokens (images, tokens, width) of drawn scenes, by grid, and what is in their nine places."""
    torch.set_num_threads(1)
    student = Student(bundled_model(), "cpu")
    for number in numbers:
        path = folder / f"{split}-{most}-{number:04}.npz"
        if path.exists():
            continue
        rng = scenes.rng_for(split, "boxes", split, most, number)
        groups: dict[Grid, list[tuple[Any, Any, Any]]] = {}
        for _ in range(SHARD):
            scene, size = scenes.random_scene(rng, most), size_of(rng)
            (unit,) = Maker._units(scene, size, grid_of(size))
            groups.setdefault(grid_of(size), []).append((unit, cells_of(scene), edges_of(scene, size)))
        arrays: dict[str, Any] = {}
        for grid, found in groups.items():
            units, cells, edges = (np.stack(each) for each in zip(*found, strict=True))
            name = f"{grid[0]}x{grid[1]}"
            with torch.no_grad():
                looks = torch.cat([student.look(units[at : at + 64], grid) for at in range(0, len(units), 64)])
            arrays |= {f"f{name}": looks.half().numpy(), f"c{name}": cells.astype(np.int8), f"e{name}": edges}
        np.savez(path.with_suffix(".new.npz"), **arrays)
        path.with_suffix(".new.npz").replace(path)


def bundled_model() -> Any:
    """Return the bundled model in float32, frozen."""
    model = Qwen2VLForConditionalGeneration.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="sdpa")
    return model.requires_grad_(False)


class Pictures:
    """The cached images of one split, by grid: image tokens, cells (9, 2) and edges (9, 4) as `train_shapes.Batch`
    has them."""

    def __init__(self, folder: Path, split: scenes.Split, most: int) -> None:
        found: dict[Grid, list[tuple[Any, Any, Any]]] = {}
        for path in sorted(folder.glob(f"{split}-{most}-[0-9][0-9][0-9][0-9].npz")):
            with np.load(path) as arrays:
                for name in (key[1:] for key in arrays.files if key[0] == "f"):
                    rows, columns = map(int, name.split("x"))
                    found.setdefault((rows, columns), []).append(tuple(arrays[f"{part}{name}"] for part in "fce"))
        joined = {grid: zip(*parts, strict=True) for grid, parts in found.items()}
        self.by_grid = {grid: [np.concatenate(each) for each in parts] for grid, parts in joined.items()}
        self.shares = [len(looks) ** 0.55 for looks, _, _ in self.by_grid.values()]

    def choose(self, rng: Random) -> tuple[Grid, Any, Any, Any]:
        """Return an image: its grid, image tokens, cells and edges."""
        grid = (6, 6) if rng.random() < SQUARE else rng.choices(list(self.by_grid), self.shares)[0]
        looks, cells, edges = self.by_grid[grid]
        at = rng.randrange(len(looks))
        return grid, looks[at], cells[at], edges[at]


@dataclass
class Batch:
    """Conversations about one image each: (B, LENGTH) tokens, and the (B, ANSWER) places in them that are learnt.

    `looks`: all image tokens in order (tokens, width); `at`: the token before each token of an answer, `wanted`: that
    token, `weight`: 0 where there is none; `edges`: left, top, right and bottom of the shape (B, 4) as shares;
    `is_digit`: where a digit of a box is wanted; `rest`: what the digits before leave of its number, as a share of ten
    times the digit's place value (0.85 where 385 goes on with 8); `digit`: which digit of the number it is, from 0.
    """

    ids: Any
    positions: Any
    looks: Any
    at: Any
    wanted: Any
    weight: Any
    edges: Any
    is_digit: Any
    rest: Any
    digit: Any


class Author:
    """Makes batches of conversations about images."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.maker, self.tokenizer = Maker(tokenizer), tokenizer
        self.digits = {tokenizer.token_to_id(str(digit)): digit for digit in range(10)}
        self.starts = {tokenizer.token_to_id(mark) for mark in "(,"}

    def talk(self, rng: Random, cells: Any, edges: Any) -> scenes.Conversation:
        """Return a question about the position of a scene's shape, in random wording, and its answer."""
        (place,) = np.flatnonzero(cells[:, 0])
        colour, kind = cells[place]
        scene = scenes.Scene((scenes.Shape(list(scenes.COLOURS)[colour - 1], scenes.KINDS[kind - 1], int(place)),))
        question, answer = scenes.about_box(rng, scene, 0)
        answer = re.sub(r"\{box \d+ \d+\}", scenes.thousandths(edges[place]), answer)
        turn = scenes._turn(rng, [scene], scenes.varied(rng, question), answer)
        return scenes.Conversation([turn], scenes.other_text(rng) if rng.random() < 0.06 else "")

    def batch(self, rng: Random, pictures: Pictures, count: int) -> Batch:
        """Make `count` conversations."""
        ids, wanted, at = (np.zeros((count, size), np.int64) for size in (LENGTH, ANSWER, ANSWER))
        positions = np.zeros((3, count, LENGTH), np.int64)
        weight, rest = (np.zeros((count, ANSWER), np.float32) for _ in range(2))
        is_digit, digits = np.zeros((count, ANSWER), bool), np.zeros((count, ANSWER), np.int64)
        shown: list[Any] = []
        boxes: list[Any] = []
        while (row := len(shown)) < count:
            grid, looks, cells, edges = pictures.choose(rng)
            tokens, turns, places = self.maker._row(self.talk(rng, cells, edges), [(grid, 1)])
            first, length = turns.index(1), len(tokens)
            if length > LENGTH or length - first > ANSWER:
                continue
            shown.append(looks)
            boxes.append(edges[np.flatnonzero(cells[:, 0])[0]])
            ids[row, :length], positions[:, row, :length] = tokens, places
            at[row, : length - first], wanted[row, : length - first] = range(first - 1, length - 1), tokens[first:]
            weight[row, : length - first] = WORDS
            for place, digit, left in self._digits(tokens[first:], boxes[row]):
                is_digit[row, place], weight[row, place], rest[row, place] = True, DIGITS[digit], left
                digits[row, place] = digit
        arrays = (ids, positions, np.concatenate(shown), at, wanted, weight, np.stack(boxes), is_digit, rest, digits)
        return Batch(*map(torch.from_numpy, arrays))

    def _digits(self, answer: Sequence[int], box: Any) -> Iterator[tuple[int, int, float]]:
        """Yield the index of each digit of a box in the tokens of an answer, its index in its number, and
        `Batch.rest`."""
        numbers = iter(box)
        for first in range(1, len(answer)):
            if answer[first - 1] not in self.starts or answer[first] not in self.digits:
                continue
            left = float(next(numbers)) * 1000 + scenes.STEP / 2  # numbers are rounded: what is cut off then is right
            for digit in range(3):
                unit = 10 ** (2 - digit)
                yield first + digit, digit, left / unit / 10
                left -= self.digits[answer[first + digit]] * unit


class Changes:
    """The adapter: adds a product of two low-rank matrices to every matrix of the text layers."""

    def __init__(self, layers: Layers, rank: int) -> None:
        self.names = layers.names
        shapes = [layers.own[name].shape for name in self.names]
        thin = [torch.randn(rank, columns) / math.sqrt(columns) for _, columns in shapes]
        self.first = torch.nn.ParameterList(thin)
        self.second = torch.nn.ParameterList([torch.zeros(rows, rank) for rows, _ in shapes])
        self.matrices = torch.nn.ModuleList([self.first, self.second])

    def groups(self) -> list[dict[str, Any]]:
        """The matrices with their learning-rate factors."""
        found = []
        for thin, pace in ((self.first, 0.5), (self.second, 1.0)):
            for name, matrix in zip(self.names, thin, strict=True):
                steep = 3.0 if name.startswith("layers.3.mlp") else 1.5 if name.startswith("layers.3.") else 1.0
                found.append({"params": [matrix], "pace": pace * steep})
        return found

    def products(self) -> dict[str, Any]:
        return {name: two @ one for name, one, two in zip(self.names, self.first, self.second, strict=True)}

    def export(self, folder: Path) -> None:
        """Write the adapter in PEFT's format."""
        rank, weights = len(self.first[0]), {}
        for name, one, two in zip(self.names, self.first, self.second, strict=True):
            module = f"base_model.model.model.language_model.{name.removesuffix('.weight')}"
            weights[f"{module}.lora_A.weight"] = one.detach().bfloat16().contiguous()
            weights[f"{module}.lora_B.weight"] = two.detach().bfloat16().contiguous()
        folder.mkdir(parents=True, exist_ok=True)
        save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        config = {
            "base_model_name_or_path": "shapes", "bias": "none", "inference_mode": True, "lora_alpha": rank,
            "lora_dropout": 0.0, "peft_type": "LORA", "r": rank, "task_type": "CAUSAL_LM",
            "target_modules": sorted({name.split(".")[-2] for name in self.names}),
        }  # fmt: skip
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


class Run:
    """A training run: its adapter, progress and files."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.step, self.rng = args, 0, Random(args.seed)
        self.author = Author(Tokenizer.from_file(str(MODEL / "tokenizer.json")))
        self.layers = Layers(bundled_model())
        self.changes = Changes(self.layers, args.rank)
        self.edges, self.early = torch.nn.Linear(WIDTH, 4), torch.nn.Linear(WIDTH, 4)
        self.rest = torch.nn.Linear(WIDTH, 1)
        for head in (self.edges, self.early, self.rest):
            torch.nn.init.zeros_(head.weight)
            torch.nn.init.constant_(head.bias, 0.5)
        heads = [*self.edges.parameters(), *self.early.parameters(), *self.rest.parameters()]
        self.parts = torch.nn.ModuleList([self.changes.matrices, self.edges, self.early, self.rest])
        self.optimiser = Both(
            torch.optim.Muon(self.changes.groups(), lr=args.peak, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW([{"params": heads, "pace": 1.0}], lr=args.peak, betas=(0.9, 0.98), weight_decay=0.0),
        )
        self.losses: dict[str, float] = {}
        if args.resume:
            state = torch.load(args.checkpoint, weights_only=True)
            self.parts.load_state_dict(state["parts"])
            self.optimiser.load_state_dict(state["optimiser"])

    def save(self) -> None:
        """Write the checkpoint and the adapter."""
        fresh = self.args.checkpoint.with_suffix(".new")
        torch.save({"parts": self.parts.state_dict(), "optimiser": self.optimiser.state_dict()}, fresh)
        fresh.replace(self.args.checkpoint)
        if self.args.export:
            self.changes.export(self.args.export)

    def update(self, batch: Batch, rate: float) -> None:
        """Take an optimiser step."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group["pace"]
        products = self.changes.products()
        hidden, before, earlier = self.layers.read(batch.ids, batch.positions, batch.looks, batch.at, products)
        there, digits = batch.weight > 0, batch.is_digit
        logits = functional.linear(hidden[there].bfloat16(), self.layers.spell).float()
        each = functional.cross_entropy(logits, batch.wanted[there], reduction="none")
        words = (each * batch.weight[there]).sum() / batch.weight.sum()
        boxes = batch.edges[:, None].expand(-1, ANSWER, -1)[digits]
        edges, early = self.off(self.edges, before[digits], boxes), self.off(self.early, earlier[digits], boxes)
        left = self.rest(functional.rms_norm(before[digits], (WIDTH,)))[:, 0]
        rest = functional.smooth_l1_loss(left, batch.rest[digits], beta=0.05, reduction="none")
        rest = (rest * torch.tensor(RESTS)[batch.digit[digits]]).mean()
        (words + HINTS * (edges + rest + early / 2)).backward()
        torch.nn.utils.clip_grad_norm_(self.parts.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.step += 1
        for name, loss in (("words", words), ("edges", edges), ("early", early), ("rest", rest)):
            self.losses[name] = 0.97 * self.losses.get(name, loss.item()) + 0.03 * loss.item()

    @staticmethod
    def off(head: torch.nn.Linear, hidden: Any, boxes: Any) -> torch.Tensor:
        """Return the error of the edges that a head predicts, as a share of the shape's size."""
        off = (head(functional.rms_norm(hidden, (WIDTH,))) - boxes) / (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)
        return functional.smooth_l1_loss(off, torch.zeros_like(off), beta=0.05)

    def train(self, pictures: Pictures) -> None:
        """Train until the time is over. The learning rate falls to zero over the time."""
        spent, last = 0.0, time.monotonic()
        while (left := 1 - spent / (self.args.minutes * 60)) > 0:
            rate = self.args.peak * left * min(1, (self.step + 1) / 50)
            self.update(self.author.batch(self.rng, pictures, self.args.batch), rate)
            now = time.monotonic()
            spent, last = spent + now - last, now
            if self.step % 50 == 0:
                losses = " ".join(f"{name} {loss:.4f}" for name, loss in self.losses.items())
                print(f"step {self.step} minute {spent / 60:.1f} loss {losses}", flush=True)
            if self.step % 300 == 0:
                self.save()
        self.save()


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="folder for image tokens: 12 MB for 1,000 pictures")
    parser.add_argument("--shards", type=int, default=40, help="thousands of pictures to learn from")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--checkpoint", type=Path, required=True, help="file that holds the state of the run")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--export", type=Path, help="folder that gets the adapter at every checkpoint")
    parser.add_argument("--peak", type=float, default=1.5e-3, help="highest learning rate")
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = options()
    args.cache.mkdir(parents=True, exist_ok=True)
    draw_shards(args.cache, "train", 1, range(args.shards))
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    Run(args).train(Pictures(args.cache, "train", 1))


if __name__ == "__main__":
    main()
