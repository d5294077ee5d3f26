"""Trains the bundled `shapes` model, a tiny Qwen2-VL, from scratch on drawn scenes and exports it.

    python tools/train_shapes.py --minutes 100 --checkpoint /path/state.pt --export src/vlmtui/bundled/shapes

The learning rate follows the share of `--minutes` that has passed, so a run always decays fully; `--resume` goes on
from the checkpoint (also after a SIGTERM, which saves), and `--start FOLDER` begins with an exported model's weights
and tokenizer and a fresh optimiser. Needs torch, transformers, tokenizers, Pillow and numpy; runs on a CPU or, with
`--device cuda`, on a GPU. On a busy CPU, set `OMP_WAIT_POLICY=passive`: threads that spin waste much of what is left.

These helped, each judged by one run: a small rotary base with about equal sections (with the usual 10,000 the width has
only the slowest frequencies, and places were not learnt); the vision tower alone first (colour and kind in each of nine
places, from two linear heads), several times cheaper per image than a full step; single images next, then half of all
batches with several images; small batches and many steps.

Muon for the matrices of the blocks came last, together with clearer drawings; neither was judged alone.

At least three rows of image tokens, whatever the aspect: with two, wide images were read badly.

The model does not learn boxes, but an adapter does (`tools/train_boxes.py`). An attempt to train them into the model
itself, for 12 minutes on a large GPU, got half of them right and made questions about earlier images 5 % worse.

Questions about one thing among several (its colour, its place) are still answered badly. A phase with many of these
about one image made everything else worse; another 84 minutes of the last mixture made them better, too.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import queue
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as functional
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2VLConfig, Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

import scenes

PATCH, MERGE, PAIR = 14, 2, 2
MIN_PIXELS, MAX_PIXELS = 30 * 28 * 28, 36 * 28 * 28
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
SPECIALS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
    "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
CHAT_TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message['role'] }}
{% if thinking is defined and thinking and message['role'] == 'user' %}Think first. {% endif -%}
{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] -%}
{%- if part['type'] == 'image' or 'image' in part or 'image_url' in part -%}
<|vision_start|><|image_pad|><|vision_end|>
{%- elif part['type'] == 'video' or 'video' in part -%}
<|vision_start|><|video_pad|><|vision_end|>
{%- elif 'text' in part -%}
{{ part['text'] }}
{%- endif -%}
{%- endfor %}{% endif %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}
"""
BATCH = {"one": 20, "many": 9, "video": 12, "earlier": 9, "text": 10, "look": 64}
LONGEST = {"one": 156, "many": 330, "earlier": 350, "video": 165}
"""Maximum length of sequences, in tokens, in most batches: less padding gives more steps."""
CELLS = 0.5
"""Weight of the loss that only trains the vision tower."""
EDGES = 20.0
"""Weight of the loss on the shapes' edges, which are shares of the image's width and height."""
LOOK_FIRST = 0.29
"""The share of the time in which only the vision tower is trained."""
END = 4.0
"""Weight of the end token in conversations without an image: in a long count, one token decides where to stop."""
STRETCHED = 0.3
"""The share of non-square images with an aspect far from 1, so that these occur often enough."""
FULL = 0.62
"""The share of the time after which scenes and conversations have their full variety."""
Grid = tuple[int, int]


def build_tokenizer() -> Tokenizer:
    """Return a byte-level BPE in which every word of the domain and every number up to 200 is one token."""
    words: Counter[str] = Counter()
    for index in range(3000):
        for task in scenes.TASKS:
            for turn in scenes.conversation(scenes.rng_for("train", "words", task, index), task).turns:
                words[turn.answer] += 1
                words.update(part for part in turn.parts if isinstance(part, str))
    texts = [text for text, count in words.items() for _ in range(min(count, 3))]
    texts += [" ".join(map(str, range(201))) for _ in range(60)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1392, min_frequency=12, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    return tokenizer


def build_model(tokenizer: Tokenizer) -> Qwen2VLForConditionalGeneration:
    """Return a new Qwen2-VL with about three million parameters."""
    token = {name: tokenizer.token_to_id(name) for name in SPECIALS}
    text = {
        "vocab_size": math.ceil(tokenizer.get_vocab_size() / 16) * 16, "hidden_size": 192, "intermediate_size": 512,
        "num_hidden_layers": 4, "num_attention_heads": 3, "num_key_value_heads": 1, "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "bos_token_id": token["<|endoftext|>"],
        "eos_token_id": token["<|im_end|>"], "pad_token_id": token["<|endoftext|>"],
        "rope_parameters": {"rope_type": "default", "mrope_section": [6, 13, 13], "rope_theta": 16.0},
    }  # fmt: skip
    vision = {"depth": 3, "embed_dim": 128, "num_heads": 4, "hidden_size": 192, "mlp_ratio": 4, "patch_size": PATCH}
    config = Qwen2VLConfig(
        text_config=text, vision_config=vision, tie_word_embeddings=True,
        image_token_id=token["<|image_pad|>"], video_token_id=token["<|video_pad|>"],
        vision_start_token_id=token["<|vision_start|>"], vision_end_token_id=token["<|vision_end|>"],
    )  # fmt: skip
    config._attn_implementation = "sdpa"
    return Qwen2VLForConditionalGeneration(config)


@dataclass
class Batch:
    """Sequences of one task. `ids`, `wanted` (0 or the turn's number + 1): (B, L); `positions`: (3, B, L).

    `frames` maps a grid (rows, columns of image tokens) to uint8 frames (units, 1 or 2, height, width, 3), a unit being
    an image or two frames of a clip; `cells` holds, per grid, colour and kind (1, 2, ...; 0 for nothing) in the nine
    places of every unit (units, 9, 2), all -1 for clips; `edges` the left, top, right and bottom of the shapes there
    (units, 9, 4), as shares of width and height; `moves` holds, per grid, the direction of every unit (units,),
    -1 where nothing moves; `order` names, for every unit in reading order, its grid and
    its index there.
    """

    task: str
    ids: Any
    wanted: Any
    positions: Any
    frames: dict[Grid, Any]
    cells: dict[Grid, Any]
    edges: dict[Grid, Any]
    moves: dict[Grid, Any]
    order: list[tuple[Grid, int]]


def grid_of(size: scenes.Size) -> Grid:
    """Return rows and columns of image tokens for an image of this width and height, as the image processor does."""
    height, width = smart_resize(size[1], size[0], PATCH * MERGE, MIN_PIXELS, MAX_PIXELS)
    return height // 28, width // 28


def similar_size(rng: Random, size: scenes.Size) -> scenes.Size:
    """Return a size with the same grid, little larger than what the model sees."""
    grid = grid_of(size)
    for _ in range(12):
        scale = math.exp(rng.uniform(-0.7, 0.7))
        near = (round(size[0] * scale * rng.uniform(0.93, 1.07)), round(size[1] * scale))
        if min(near) >= 28 and grid_of(near) == grid:
            size = near
            break
    shrink = min(1.0, rng.uniform(160, 320) / max(size))
    return max(20, round(size[0] * shrink)), max(20, round(size[1] * shrink))


def units_of(part: scenes.Scene | scenes.Clip) -> int:
    """Return the images, or pairs of frames, of a scene or clip."""
    return 1 if isinstance(part, scenes.Scene) else -(-part.frames // PAIR)


def cells_of(part: scenes.Scene | scenes.Clip) -> Any:
    """Return colour and kind in the nine places (9, 2), numbered as in `Batch.cells`."""
    table = np.full((9, 2), 0 if isinstance(part, scenes.Scene) else -1)
    for shape in part.shapes if isinstance(part, scenes.Scene) else ():
        table[shape.place] = list(scenes.COLOURS).index(shape.colour) + 1, scenes.KINDS.index(shape.kind) + 1
    return table


def edges_of(part: scenes.Scene | scenes.Clip, size: scenes.Size) -> Any:
    """Return left, top, right and bottom (9, 4) of the shapes in the nine places at this size: see `Batch`."""
    table = np.zeros((9, 4), np.float32)
    if isinstance(part, scenes.Scene):
        for shape, box in zip(part.shapes, scenes.boxes(part, size), strict=True):
            table[shape.place] = box
    return table


def move_of(part: scenes.Scene | scenes.Clip, unit: Any) -> int:
    """Return the direction that two frames (2, height, width, 3) show, numbered as in `Batch.moves`."""
    if isinstance(part, scenes.Scene) or np.array_equal(unit[0], unit[1]):
        return -1
    return list(scenes.DIRECTIONS).index(part.direction)


def glance(rng: Random, most: int) -> scenes.Conversation:
    """Return a conversation of one image without text."""
    return scenes.Conversation([scenes.Turn([scenes.random_scene(rng, most)], "")])


class Maker:
    """Makes batches of conversations with a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text that may contain special tokens."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def batch(self, rng: Random, task: str, count: int, most: int, square: float = 0.25) -> Batch:
        """Return `count` conversations of a task whose images have one or two different grids."""
        sizes = [self._size(rng, square) for _ in range(2 if task in ("many", "earlier") else 1)]
        frames: dict[Grid, list[Any]] = {}
        cells: dict[Grid, list[Any]] = {}
        edges: dict[Grid, list[Any]] = {}
        moves: dict[Grid, list[int]] = {}
        order: list[tuple[Grid, int]] = []
        rows: list[tuple[list[int], list[int], Any]] = []
        limit = LONGEST.get(task, 1000) if rng.random() < 0.85 else 1000
        while len(rows) < count:
            talk = scenes.conversation(rng, task, most) if task != "look" else glance(rng, most)
            shown = [
                (part, similar_size(rng, rng.choice(sizes)))
                for turn in talk.turns
                for part in turn.parts
                if not isinstance(part, str)
            ]
            row = self._row(talk, [(grid_of(size), units_of(part)) for part, size in shown])
            if len(row[0]) > limit:
                continue
            rows.append(row)
            for part, size in shown:
                for unit in self._units(part, size, grid_of(size)):
                    moves.setdefault(grid_of(size), []).append(move_of(part, unit))
                    order.append((grid_of(size), len(frames.setdefault(grid_of(size), []))))
                    frames[grid_of(size)].append(unit)
                    cells.setdefault(grid_of(size), []).append(cells_of(part))
                    edges.setdefault(grid_of(size), []).append(edges_of(part, size))
        length = max(len(row[0]) for row in rows)
        ids, wanted = (np.zeros((count, length), np.int64) for _ in range(2))
        positions = np.zeros((3, count, length), np.int64)
        for i, (tokens, turns, places) in enumerate(rows):
            ids[i, : len(tokens)], wanted[i, : len(tokens)], positions[:, i, : len(tokens)] = tokens, turns, places
        kept = ({grid: np.stack(units) for grid, units in table.items()} for table in (frames, cells, edges))
        seen, known, drawn = kept
        going = {grid: np.array(directions) for grid, directions in moves.items()}
        return Batch(task, ids, wanted, positions, seen, known, drawn, going, order)

    @staticmethod
    def _size(rng: Random, square: float) -> scenes.Size:
        if rng.random() < square:
            side = rng.choice((64, 112, 128, 224, 256, 336, 448, 512))
            return side, side
        if rng.random() < STRETCHED:
            shorter, aspect = rng.randint(40, 400), rng.uniform(1.8, scenes.MAX_ASPECT)
            size = round(shorter * aspect), shorter
            return size if rng.random() < 0.55 else size[::-1]
        return scenes.random_size(rng)

    @staticmethod
    def _units(part: scenes.Scene | scenes.Clip, size: scenes.Size, grid: Grid) -> list[Any]:
        """Return a scene as one frame, or a clip as pairs of frames: each (1 or 2, height, width, 3) at the size of the
        grid."""
        images = [scenes.draw(part, size)] if isinstance(part, scenes.Scene) else scenes.draw_clip(part, size)
        target = (grid[1] * 28, grid[0] * 28)
        if isinstance(part, scenes.Scene):
            return [np.asarray(images[0].resize(target, Image.Resampling.BICUBIC))[None]]
        arrays = [np.asarray(image.resize(target, Image.Resampling.BICUBIC)) for image in images]
        arrays += arrays[-1:] * (len(arrays) % 2)
        return [np.stack(arrays[i : i + 2]) for i in range(0, len(arrays), 2)]

    def _row(self, talk: scenes.Conversation, media: list[tuple[Grid, int]]) -> tuple[list[int], list[int], Any]:
        """Return token ids, turn numbers of the answer tokens (0 elsewhere) and positions (3, L) of one
        conversation."""
        ids: list[int] = []
        wanted: list[int] = []
        shown = iter(media)
        prompt = f"<|im_start|>system\n{talk.system}<|im_end|>\n" if talk.system else ""
        for number, turn in enumerate(talk.turns, 1):
            prompt += "<|im_start|>user\n"
            for part in turn.parts:
                if isinstance(part, str):
                    prompt += part
                else:
                    grid, units = next(shown)
                    pad = "<|image_pad|>" if isinstance(part, scenes.Scene) else "<|video_pad|>"
                    prompt += f"<|vision_start|>{pad * (grid[0] * grid[1] * units)}<|vision_end|>"
            asked = self.encode(prompt + "<|im_end|>\n<|im_start|>assistant\n")
            answer = self.encode(turn.answer + "<|im_end|>")
            ids += asked + answer
            wanted += [0] * len(asked) + [number] * len(answer)
            prompt = "\n"
        return ids, wanted, self._positions(ids, media)

    def _positions(self, ids: list[int], media: list[tuple[Grid, int]]) -> Any:
        """Return M-RoPE positions (3, L): text advances all three by one, an image spans time, rows and columns."""
        pads = {self.tokenizer.token_to_id("<|image_pad|>"), self.tokenizer.token_to_id("<|video_pad|>")}
        places: list[Any] = []
        shown = iter(media)
        index = position = 0
        while index < len(ids):
            if ids[index] in pads:
                (rows, columns), units = next(shown)
                places.append(np.indices((units, rows, columns)).reshape(3, -1) + position)
                index, position = index + units * rows * columns, position + max(rows, columns)
            else:
                places.append(np.full((3, 1), position))
                index, position = index + 1, position + 1
        return np.concatenate(places, axis=1)


def plan(rng: Random, step: int, progress: float) -> list[tuple[str, int, float]]:
    """Return the tasks of one optimiser step, each with the maximum number of shapes and the share of square images.
    First only the vision tower learns (`look`), then easy scenes, then conversations with several images."""
    if progress < LOOK_FIRST:
        return [("look", 3, 0.4)]
    if progress < 0.4:
        weights, limits, square, ones = (45, 10, 20, 10, 15), (25, 25, 50), 0.5, 1.0
    elif progress < FULL:
        weights, limits, square, ones = (6, 34, 20, 30, 10), (0, 20, 80), 0.3, 0.6
    else:
        weights, limits, square, ones = (16, 26, 16, 32, 10), (15, 15, 70), 0.25, 0.5
    most = rng.choices((1, 2, 3), limits)[0]
    first = "one" if rng.random() < ones else rng.choice(("many", "earlier"))
    tasks = [(first, most, square), (rng.choices(scenes.TASKS, weights)[0], most, square)]
    return tasks + [("look", 3, square)] * (progress < FULL and step % 4 == 0)


def feed(tokenizer_json: str, seed: int, first: int, stride: int, larger: int, progress: Any, made: Any) -> None:
    """Put the batches of every `stride`-th step into the queue, in order. Runs in a background process."""
    maker, parent, step = Maker(Tokenizer.from_str(tokenizer_json)), os.getppid(), first
    while True:
        rng = scenes.rng_for("train", seed, step)
        tasks = plan(rng, step, progress.value)
        batches = [maker.batch(rng, task, BATCH[task] * larger, most, square) for task, most, square in tasks]
        while made.full():
            if os.getppid() != parent:
                return
            time.sleep(0.1)
        made.put(batches)
        step += stride


class Student:
    """The model with batched vision attention: same weights and results as its own `forward`, many times faster."""

    def __init__(self, model: Qwen2VLForConditionalGeneration, device: str) -> None:
        self.model, self.device = model.to(device), device
        self.rotary: dict[Grid, tuple[torch.Tensor, torch.Tensor]] = {}
        width = model.config.vision_config.hidden_size
        self.colour, self.kind = (torch.nn.Linear(width, 1 + len(names)) for names in (scenes.COLOURS, scenes.KINDS))
        self.motion = torch.nn.Linear(width, len(scenes.DIRECTIONS))
        self.edges = torch.nn.Linear(width, 4)
        self.heads = torch.nn.ModuleList([self.colour, self.kind, self.motion, self.edges]).to(device)

    def look(self, frames: Any, grid: Grid) -> torch.Tensor:
        """Return image tokens (units, rows * columns, hidden) of uint8 frames (units, 1 or 2, height, width, 3)."""
        visual, (rows, columns) = self.model.model.visual, grid
        pixels = torch.from_numpy(frames).to(self.device).float() / 255
        pixels = (pixels - pixels.new_tensor(MEAN)) / pixels.new_tensor(STD)
        pixels = pixels.expand(-1, PAIR, -1, -1, -1).contiguous()
        cut = pixels.view(-1, PAIR, rows, MERGE, PATCH, columns, MERGE, PATCH, 3).permute(0, 2, 5, 3, 6, 8, 1, 4, 7)
        kernel = visual.patch_embed.proj.weight
        hidden = functional.linear(cut.reshape(len(frames), rows * columns * 4, -1), kernel.view(kernel.shape[0], -1))
        if grid not in self.rotary:
            at = np.indices((rows, columns, MERGE, MERGE))
            places = torch.from_numpy(np.stack([at[0] * 2 + at[2], at[1] * 2 + at[3]], -1).reshape(-1, 2))
            self.rotary[grid] = visual.rotary_pos_emb(hidden.detach(), places.to(self.device))
        cos, sin = (table.view(table.shape[-2], 1, -1).float() for table in self.rotary[grid])
        for block in visual.blocks:
            attention = block.attn
            qkv = attention.qkv(block.norm1(hidden)).view(*hidden.shape[:2], 3, attention.num_heads, -1)
            queries, keys, values = qkv.unbind(2)
            queries, keys = (
                x * cos + torch.cat((-x.chunk(2, -1)[1], x.chunk(2, -1)[0]), -1) * sin for x in (queries, keys)
            )
            seen = functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (queries, keys, values)))
            hidden = hidden + attention.proj(seen.transpose(1, 2).reshape(hidden.shape))
            hidden = hidden + block.mlp(block.norm2(hidden))
        return visual.merger(hidden.reshape(-1, hidden.shape[-1])).view(len(frames), rows * columns, -1)

    def logits(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return logits (N, vocabulary) for the N answer tokens of a batch, their ids (N,) and the loss of
        `cell_loss`."""
        inner = self.model.model
        tables = (torch.from_numpy(table).to(self.device) for table in (batch.ids, batch.wanted, batch.positions))
        ids, wanted, positions = tables
        embedded = inner.language_model.embed_tokens(ids)
        cells = embedded.new_zeros(())
        if batch.order:
            looks = {grid: self.look(frames, grid) for grid, frames in batch.frames.items()}
            if batch.task == "video":
                cells = torch.stack([self.move_loss(looks[grid], batch.moves[grid]) for grid in looks]).mean()
            else:
                cells = torch.stack([self.cell_loss(looks[grid], grid, batch) for grid in looks]).mean()
            seen = torch.cat([looks[grid][index] for grid, index in batch.order])
            config = self.model.config
            mask = (ids == config.image_token_id) | (ids == config.video_token_id)
            embedded = embedded.masked_scatter(mask[..., None].expand_as(embedded), seen)
        hidden = inner.language_model(inputs_embeds=embedded, position_ids=positions, use_cache=False).last_hidden_state
        asked = wanted[:, 1:] > 0
        return self.model.lm_head(hidden[:, :-1][asked]), ids[:, 1:][asked], cells

    def move_loss(self, looks: torch.Tensor, moves: Any) -> torch.Tensor:
        """Return the loss of reading a motion's direction from the image tokens (units, tokens, hidden) of two frames.
        Used only in training, like `cell_loss`."""
        told = self.motion(looks).logsumexp(1)
        return functional.cross_entropy(told, torch.from_numpy(moves).to(self.device), ignore_index=-1)

    def cells(self, batch: Batch) -> torch.Tensor:
        """The mean of `cell_loss` over the grids of a batch."""
        losses = [self.cell_loss(self.look(frames, grid), grid, batch) for grid, frames in batch.frames.items()]
        return torch.stack(losses).mean()

    def cell_loss(self, looks: torch.Tensor, grid: Grid, batch: Batch) -> torch.Tensor:
        """Return the loss of reading the nine places and their edges from image tokens (units, rows * columns, hidden).

        Only training uses this: linear heads read the tokens interpolated at the middle of every place, which
        teaches the vision tower colours, kinds and edges long before the language model can ask for them.
        """
        plane = looks.view(len(looks), *grid, -1).permute(0, 3, 1, 2)
        at = (torch.arange(3, device=looks.device) * 2 - 2) / 3
        points = torch.stack((at.repeat(3), at.repeat_interleave(3)), -1).expand(len(looks), 1, 9, 2)
        read = functional.grid_sample(plane, points, align_corners=False, padding_mode="border")[:, :, 0].transpose(
            1, 2
        )
        wanted = torch.from_numpy(batch.cells[grid]).to(self.device)
        losses = [
            functional.cross_entropy(head(read).flatten(0, 1), wanted[..., i].flatten())
            for i, head in enumerate((self.colour, self.kind))
        ]
        there = (wanted[..., :1] > 0).float()
        off = functional.smooth_l1_loss(
            self.edges(read), torch.from_numpy(batch.edges[grid]).to(self.device), beta=0.005, reduction="none"
        )
        return losses[0] + losses[1] + EDGES * (off * there).sum() / (4 * there.sum()).clamp(min=1)

    def watch(self, maker: Maker, task: str, count: int) -> tuple[float, float]:
        """Return the shares of first and of later turns that greedy decoding answers correctly, on new samples."""
        batch = maker.batch(scenes.rng_for("eval", "watch", task), task, count, 3)
        with torch.no_grad():
            logits, ids, _ = self.logits(batch)
        wrong = (logits.argmax(-1) != ids).cpu().numpy()
        rows, columns = np.nonzero(batch.wanted[:, 1:])
        turns: dict[tuple[int, int], bool] = {}
        for row, turn, bad in zip(rows, batch.wanted[:, 1:][rows, columns], wrong, strict=True):
            turns[int(row), int(turn)] = turns.get((int(row), int(turn)), True) and not bad
        first = [good for (_, turn), good in turns.items() if turn == 1]
        later = [good for (_, turn), good in turns.items() if turn > 1] or [True]
        return sum(first) / len(first), sum(later) / len(later)


def export(model: Qwen2VLForConditionalGeneration, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the checkpoint folder for transformers and vLLM; replaces files one by one, atomically."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        fresh = Path(name)
        half = Qwen2VLForConditionalGeneration(model.config)
        half.load_state_dict(model.state_dict())
        ends = [tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")]
        half.generation_config.update(eos_token_id=ends, pad_token_id=ends[1], bos_token_id=ends[1])
        half.to(torch.bfloat16).save_pretrained(fresh)
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=4096,
            additional_special_tokens=list(SPECIALS), clean_up_tokenization_spaces=False,
        ).save_pretrained(fresh)  # fmt: skip
        (fresh / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
        pixels = {
            "size": {"shortest_edge": MIN_PIXELS, "longest_edge": MAX_PIXELS}, "patch_size": PATCH, "merge_size": MERGE,
            "temporal_patch_size": PAIR, "image_mean": MEAN, "image_std": STD, "do_resize": True, "do_rescale": True,
            "do_normalize": True, "do_convert_rgb": True, "resample": 3, "processor_class": "Qwen2VLProcessor",
        }  # fmt: skip
        image = pixels | {
            "image_processor_type": "Qwen2VLImageProcessor",
            "min_pixels": MIN_PIXELS,
            "max_pixels": MAX_PIXELS,
        }
        video = pixels | {
            "video_processor_type": "Qwen2VLVideoProcessor",
            "do_sample_frames": False,
            "cap_pixels_per_frame": False,
        }
        (fresh / "preprocessor_config.json").write_text(json.dumps(image, indent=2) + "\n", encoding="utf-8")
        (fresh / "video_preprocessor_config.json").write_text(json.dumps(video, indent=2) + "\n", encoding="utf-8")
        folder.mkdir(parents=True, exist_ok=True)
        for path in fresh.iterdir():
            moved = folder / f".{path.name}.new"
            shutil.move(path, moved)
            moved.chmod(0o644)
            moved.replace(folder / path.name)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=100, help="length of the whole run, earlier parts included")
    parser.add_argument("--checkpoint", type=Path, required=True, help="file that holds the state of the run")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument(
        "--start", type=Path, help="folder of an exported model whose weights and tokenizer to begin with"
    )
    parser.add_argument("--look", type=float, default=0.1, help="with --start: share of the time for the vision tower")
    parser.add_argument("--export", type=Path, help="folder that gets the model at every checkpoint and at the end")
    parser.add_argument("--every", type=float, default=6, help="minutes between checkpoints")
    parser.add_argument("--peak", type=float, default=1.3e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--feeders", type=int, default=1, help="processes that draw pictures")
    parser.add_argument("--larger", type=int, default=1, help="how many times the usual batches, for a GPU")
    return parser.parse_args()


def report(student: Student, maker: Maker, count: int = 40) -> str:
    """Return the accuracies per task, of first and of later turns, in per cent."""
    scores = {task: student.watch(maker, task, count) for task in scenes.TASKS}
    return " ".join(f"{task} {first:.0%}/{later:.0%}" for task, (first, later) in scores.items())


def orthogonal(grad: torch.Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> torch.Tensor:
    """Muon's Newton-Schulz iteration in the gradient's own precision: bfloat16 is slow on most CPUs."""
    a, b, c = coefficients
    wide = grad.T if grad.size(0) > grad.size(1) else grad
    wide = wide / wide.norm().clamp(min=eps)
    for _ in range(steps):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.T if grad.size(0) > grad.size(1) else wide


class Both:
    """An optimiser that combines two: Muon for the matrices of the blocks, AdamW for all other weights."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        self.parts = parts

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for part in self.parts for group in part.param_groups]

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=set_to_none)

    def state_dict(self) -> list[Any]:
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states: list[Any]) -> None:
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)


class Run:
    """A training run: the model, its optimiser, its progress and its files."""

    def __init__(self, args: argparse.Namespace) -> None:
        state = torch.load(args.checkpoint, weights_only=False) if args.resume else None
        self.args, self.step, self.spent, self.saved = args, 0, 0.0, time.monotonic()
        self.tokenizer, model = self.origin(args.start, state)
        self.student, self.maker = Student(model, args.device), Maker(self.tokenizer)
        self.trained = [*self.student.model.parameters(), *self.student.heads.parameters()]
        matrices = [weight for weight in self.trained if weight.ndim > 1]
        vectors = [weight for weight in self.trained if weight.ndim <= 1]
        named = [(name, weight) for name, weight in model.named_parameters() if weight.ndim == 2]
        inner = [weight for name, weight in named if "layers." in name or "blocks." in name]
        hidden = {id(weight) for weight in inner}
        rest = [weight for weight in matrices if id(weight) not in hidden]
        groups = [{"params": rest, "weight_decay": 0.03}, {"params": vectors, "weight_decay": 0.0}]
        self.optimiser = Both(
            torch.optim.AdamW(groups, lr=args.peak, betas=(0.9, 0.98), fused=True),
            torch.optim.Muon(inner, lr=args.peak, weight_decay=0.03, adjust_lr_fn="match_rms_adamw"),
        )
        self.weight = torch.ones(model.config.text_config.vocab_size, device=args.device)
        self.weight[self.tokenizer.token_to_id("<|im_end|>")] = END
        self.losses = dict.fromkeys([*scenes.TASKS, "cells", "moves"], 0.0)
        if state:
            self.student.model.load_state_dict(state["model"])
            self.student.heads.load_state_dict(state["heads"], strict=False)
            self.optimiser.load_state_dict(state["optimiser"])
            self.step, self.spent = state["step"], state["spent"]

    @staticmethod
    def origin(start: Path | None, state: Any) -> tuple[Tokenizer, Qwen2VLForConditionalGeneration]:
        """Return the tokenizer and model to start from: an exported folder's, or new ones."""
        if start and not state:
            model = Qwen2VLForConditionalGeneration.from_pretrained(
                start, dtype=torch.float32, attn_implementation="sdpa"
            )
            return Tokenizer.from_file(str(start / "tokenizer.json")), model
        tokenizer = Tokenizer.from_str(state["tokenizer"]) if state else build_tokenizer()
        return tokenizer, build_model(tokenizer)

    @property
    def stage(self) -> float:
        """Return the stage of the curriculum. A run that started from a trained model has only a short first stage."""
        if self.args.start:
            return 0.0 if self.progress < self.args.look else max(FULL, self.progress)
        return self.progress

    @property
    def progress(self) -> float:
        """Return the share of the time that has passed."""
        return min(1.0, self.spent / float(self.args.minutes * 60))

    def rate(self) -> float:
        """The learning rate: a short warm-up, then a cosine down to a hundredth of the peak."""
        cosine = (1 + math.cos(math.pi * self.progress)) / 2
        return float(self.args.peak * min(1.0, (self.step + 1) / 150) * (0.01 + 0.99 * cosine))

    def note(self, name: str, loss: float) -> None:
        """Update a running mean of a loss."""
        self.losses[name] = 0.95 * self.losses[name] + 0.05 * loss if self.losses[name] else loss

    def update(self, batches: list[Batch]) -> None:
        """Take an optimiser step."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate()
        for batch in batches:
            if batch.task == "look":
                cells = self.student.cells(batch)
                cells.backward()
                self.note("cells", cells.item())
                continue
            logits, ids, cells = self.student.logits(batch)
            loss = functional.cross_entropy(logits, ids, weight=self.weight if batch.task == "text" else None)
            (loss / 2 + cells * CELLS).backward()
            self.note(batch.task, loss.item())
            if batch.order:
                self.note("moves" if batch.task == "video" else "cells", cells.item())
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.step += 1

    def save(self) -> None:
        """Write the checkpoint and the export, and print the accuracies."""
        state: dict[str, Any] = {part: getattr(self.student, part).state_dict() for part in ("model", "heads")}
        state |= {"optimiser": self.optimiser.state_dict(), "tokenizer": self.tokenizer.to_str()}
        fresh = self.args.checkpoint.with_suffix(".new")
        torch.save(state | {"step": self.step, "spent": self.spent}, fresh)
        fresh.replace(self.args.checkpoint)
        if self.args.export:
            export(self.student.model, self.tokenizer, self.args.export)
        print(f"step {self.step} minute {self.spent / 60:.1f} right: {report(self.student, self.maker)}", flush=True)
        self.saved = time.monotonic()

    def train(self, share: Any, batches: queue.Queue[list[Batch]]) -> None:
        """Train on batches from the queue until the time is over or a signal ends the process; save at the end."""
        last, ended = time.monotonic(), False

        def end(*_: object) -> None:
            nonlocal ended
            ended = True

        signal.signal(signal.SIGTERM, end)
        while self.progress < 1 and not ended:
            share.value = self.stage
            self.update(batches.get())
            now = time.monotonic()
            self.spent, last = self.spent + now - last, now
            if self.step % 50 == 0:
                text = " ".join(f"{name} {loss:.4f}" for name, loss in self.losses.items())
                print(f"step {self.step} minute {self.spent / 60:.1f} rate {self.rate():.1e} loss {text}", flush=True)
            if now - self.saved > self.args.every * 60:
                self.save()
        self.save()


def fetched(made: Any) -> queue.Queue[list[Batch]]:
    """Yield batches from another process's queue, prefetched."""
    ahead: queue.Queue[list[Batch]] = queue.Queue(maxsize=3)

    def fetch() -> None:
        while True:
            ahead.put(made.get())

    threading.Thread(target=fetch, daemon=True).start()
    return ahead


def main() -> None:
    args = options()
    if args.device == "cpu":
        torch.optim._muon._zeropower_via_newtonschulz = orthogonal
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    run = Run(args)
    parameters = sum(weight.numel() for weight in run.student.model.parameters())
    print(f"{parameters} parameters, step {run.step}", flush=True)
    context = multiprocessing.get_context("spawn")
    share, made = context.Value("d", run.stage), context.Queue(maxsize=6 * args.feeders)
    feeders = [
        context.Process(
            target=feed,
            args=(run.tokenizer.to_str(), args.seed, run.step + first, args.feeders, args.larger, share, made),
            daemon=True,
        )
        for first in range(args.feeders)
    ]
    for feeder in feeders:
        feeder.start()
    run.train(share, fetched(made))
    for feeder in feeders:
        feeder.terminate()


if __name__ == "__main__":
    main()
