"""Measures the bundled `shapes` model in real vLLM, greedily, on new scenes that training never sees.

    PYTHONPATH=src/vlmtui/worker/site python tools/eval_shapes.py --n 300

Each question is asked twice: through the chat template and as a raw prompt. Earlier turns of a conversation contain the
right answers; only the last is the model's. Exit code 1: a share of right answers is below its threshold, or the chat
template and the raw prompt give different tokens. `--tasks box any` measures the adapter `boxes`, in square and in all
images. The task `boxes`, about several shapes, is measured only if you name it: no model has learnt it.
"""

from __future__ import annotations

import argparse
import base64
import io
import itertools
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import scenes

MODEL = Path(__file__).parent.parent / "src" / "vlmtui" / "bundled" / "shapes"
ADAPTER = MODEL / "adapters" / "boxes"
SHOWN = {"image": "<|vision_start|><|image_pad|><|vision_end|>", "video": "<|vision_start|><|video_pad|><|vision_end|>"}


@dataclass(frozen=True)
class Row:
    """A row of the table: the kind of conversations, the part of the answer that must be right, and the required
    share."""

    label: str
    task: str
    least: float
    about_one_thing: bool | None = False
    """True: the last question is about one thing in an image. None: any question."""
    last_word_only: bool = False
    turn: int | None = None
    """The index of the turn to answer; None: the last."""
    most: int = 3
    """Maximum number of shapes in a scene."""
    square: bool = False
    """True: all images are square, as wide as the longer sides of others."""
    overlap: float | None = None
    """For boxes (of the adapter): the minimum intersection over union with the right box; the numbers may differ."""


ROWS = {
    "one": Row("one image, described", "one", 0.98, turn=1),
    "many": Row("two or three images, described in order", "many", 0.95, turn=1),
    "direction": Row("video: which way", "video", 0.95, last_word_only=True, turn=1),
    "video": Row("video: what moves, and which way", "video", 0.9, turn=1),
    "earlier": Row("question about an earlier image", "earlier", 0.95),
    "thing": Row("question about one thing in an image", "one", 0.75, about_one_thing=True, turn=2),
    "text": Row("no image", "text", 0.95, None, turn=1),
    "box": Row("box of a single shape, square, IoU 0.8", "box", 0.95, None, turn=1, most=1, overlap=0.8, square=True),
    "any": Row("box of a single shape, any aspect, IoU 0.8", "box", 0.8, None, turn=1, most=1, overlap=0.8),
    "boxes": Row("box of one of three shapes, IoU 0.7", "box", 0.8, None, overlap=0.7),
}
CHUNK = 100
BOX = re.compile(r"\((\d+),(\d+)\),\((\d+),(\d+)\)")


@dataclass
class Exam:
    """A test conversation, whose last answer the model gives. Its images are drawn once for both modes."""

    turns: list[scenes.Turn]
    system: str
    wanted: str
    media: list[Any]


def exam(name: str, index: int) -> Exam:
    """Create test `index` of a row, with seeds reserved for evaluation."""
    row = ROWS[name]
    for attempt in itertools.count():
        rng = scenes.rng_for("eval", "final", row.task, index, *([attempt] if attempt else []))
        talk = scenes.conversation(rng, row.task, row.most)
        turns = talk.turns[: row.turn or len(talk.turns)]
        if row.overlap is not None:
            found = turns[-1].answer.count("{box ") == 1
        else:
            found = row.about_one_thing in (None, is_about_one_thing(turns[-1].answer))
        if found:
            break
    media: list[Any] = []
    sizes: list[scenes.Size] = []
    for part in (part for turn in turns for part in turn.parts):
        if isinstance(part, scenes.Scene):
            size = scenes.random_size(rng)
            sizes.append((max(size), max(size)) if row.square else size)
            media.append(scenes.draw(part, sizes[-1]))
        elif isinstance(part, scenes.Clip):
            sizes.append(scenes.random_size(rng, high=480))
            frames = scenes.draw_clip(part, sizes[-1])
            media.append(np.stack([np.asarray(frame) for frame in frames]))
    turns = scenes.with_boxes(scenes.Conversation(turns), sizes).turns
    return Exam(turns, talk.system, turns[-1].answer, media)


def is_about_one_thing(answer: str) -> bool:
    """Return True if an answer is a sentence about one thing, not a description of the image: only the former have a
    verb."""
    return bool({"is", "are"} & set(answer.rpartition("</think>")[2].split()))


def is_right(name: str, wanted: str, text: str) -> bool:
    if ROWS[name].last_word_only:
        return text.split()[-1:] == wanted.split()[-1:]
    least = ROWS[name].overlap
    if least is None:
        return text == wanted
    meant, said = BOX.search(wanted), BOX.search(text)
    if meant is None or said is None or text[: said.start()] != wanted[: meant.start()]:
        return False
    return (
        scenes.overlap([int(number) for number in meant.groups()], [int(number) for number in said.groups()]) >= least
    )


def raw_prompt(test: Exam) -> dict[str, Any]:
    """Return the conversation as prompt text and images, as vLLM's `generate` takes it."""
    text = f"<|im_start|>system\n{test.system}<|im_end|>\n" if test.system else ""
    for turn in test.turns:
        parts = [part if isinstance(part, str) else SHOWN[kind_of(part)] for part in turn.parts]
        text += f"<|im_start|>user\n{''.join(parts)}<|im_end|>\n<|im_start|>assistant\n"
        text += "" if turn is test.turns[-1] else f"{turn.answer}<|im_end|>\n"
    kind = "image" if test.media and not isinstance(test.media[0], np.ndarray) else "video"
    return {"prompt": text} | ({"multi_modal_data": {kind: test.media}} if test.media else {})


def kind_of(part: scenes.Scene | scenes.Clip) -> str:
    return "image" if isinstance(part, scenes.Scene) else "video"


def chat_messages(test: Exam) -> list[dict[str, Any]]:
    """Return the conversation as messages for vLLM's `chat`; clips are sent as JPEG frames."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": test.system}] if test.system else []
    media = iter(test.media)
    for turn in test.turns:
        content: list[dict[str, Any]] = []
        for part in turn.parts:
            if isinstance(part, str):
                content.append({"type": "text", "text": part})
            elif isinstance(part, scenes.Scene):
                content.append({"type": "image_pil", "image_pil": next(media)})
            else:
                content.append({"type": "video_url", "video_url": {"url": frames_url(next(media))}})
        messages.append({"role": "user", "content": content})
        if turn is not test.turns[-1]:
            messages.append({"role": "assistant", "content": turn.answer})
    return messages


def frames_url(frames: Any) -> str:
    """Return frames (count, height, width, 3) as a `data:` address, in which vLLM takes single frames."""
    from PIL import Image

    texts = []
    for frame in frames:
        buffer = io.BytesIO()
        Image.fromarray(frame).save(buffer, "JPEG", quality=95)
        texts.append(base64.b64encode(buffer.getvalue()).decode())
    return "data:video/jpeg;base64," + ",".join(texts)


def engine(model: Path, adapter: Path | None = None) -> Any:
    """Load vLLM with the model, and with LoRA if an adapter is given; small settings on a CPU, the defaults on a
    GPU."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from vllm import LLM

    cpu: dict[str, Any] = {"dtype": "float32", "enforce_eager": True, "gpu_memory_utilization": 0.3, "max_num_seqs": 16}
    rank = json.loads((adapter / "adapter_config.json").read_text())["r"] if adapter is not None else 0
    able = {"enable_lora": True, "max_lora_rank": rank, "max_loras": 2} if rank else {}
    return LLM(
        model=str(model), max_model_len=2048, limit_mm_per_prompt={"image": 8, "video": 2}, **able,
        **({} if torch.cuda.is_available() else cpu),
    )  # fmt: skip


def run(llm: Any, task: str, count: int, show: int, adapter: Path) -> dict[str, Any]:
    """Return the number of right answers per mode, and of prompts whose tokens differ between the modes."""
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest

    lora = LoRARequest(adapter.name, 1, str(adapter)) if ROWS[task].overlap is not None else None
    sampling = SamplingParams(temperature=0.0, max_tokens=700)
    right = {"chat": 0, "raw": 0}
    differ = 0
    for start in range(0, count, CHUNK):
        tests = [exam(task, index) for index in range(start, min(count, start + CHUNK))]
        answers = {
            "chat": llm.chat([chat_messages(one) for one in tests], sampling, use_tqdm=False, lora_request=lora),
            "raw": llm.generate([raw_prompt(one) for one in tests], sampling, use_tqdm=False, lora_request=lora),
        }
        for mode, outputs in answers.items():
            for test, output in zip(tests, outputs, strict=True):
                text = output.outputs[0].text
                good = is_right(task, test.wanted, text)
                right[mode] += good
                if not good and show > 0:
                    show -= 1
                    asked = [part if isinstance(part, str) else "[picture]" for part in test.turns[-1].parts]
                    print(f"  {task} {mode}: {asked}\n    wanted {test.wanted!r}\n    got    {text!r}", flush=True)
        pairs = zip(answers["chat"], answers["raw"], strict=True)
        differ += sum(chat.prompt_token_ids != raw.prompt_token_ids for chat, raw in pairs)
    return {**right, "differ": differ}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=300, help="samples per task and mode")
    parser.add_argument("--model", type=Path, default=MODEL)
    learnt = [name for name, row in ROWS.items() if row.overlap is None]
    parser.add_argument("--tasks", nargs="+", choices=list(ROWS), default=learnt, help="without: all but the boxes")
    parser.add_argument("--adapter", type=Path, default=ADAPTER, help="the one that says boxes")
    parser.add_argument("--show", type=int, default=3, help="wrong answers to print per task")
    args = parser.parse_args()
    says_boxes = any(ROWS[task].overlap is not None for task in args.tasks)
    llm = engine(args.model, args.adapter if says_boxes else None)
    failed = False
    lines = []
    for task in args.tasks:
        result = run(llm, task, args.n, args.show, args.adapter)
        for mode in ("chat", "raw"):
            share = result[mode] / args.n
            below = share < ROWS[task].least
            failed |= below
            verdict = f"{'below' if below else 'ok'} {ROWS[task].least:.0%}"
            lines.append(f"{ROWS[task].label:40} {mode:5} {args.n:5} {share:7.1%}  {verdict}")
        if result["differ"]:
            failed = True
            lines.append(f"{ROWS[task].label:40} the tokens of {result['differ']} prompts differ between the modes")
    print("\n".join([f"{'task':40} {'mode':5} {'n':>5} {'right':>7}", *lines]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
