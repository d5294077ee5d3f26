"""Batches: items per second against vLLM's own offline `LLM.generate` and `LLM.chat`.

`python -m benchmarks.batch [--items N] [--rounds N]`. Both load the bundled model with the same arguments, and answer
the same questions about the same image files in turn, with other files in each round. vLLM's caches are cleared in
between. Both read the files. Budget: 0.85 of the faster of vLLM's two. A comparison with single requests, one after
another, follows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
from PIL import Image, ImageDraw

from benchmarks.bare_vllm import BareVllm, bundled_arguments, report
from vlmtui.domain.engine import EngineReady
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.engine.local.host import WorkerHost
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.batch.items import BatchReader
from vlmtui.session.batch.results import OutputFile
from vlmtui.session.batch.run import BatchEngine, BatchJob, Tally, answer_items
from vlmtui.worker.backends.contract import CPU_NICENESS

BUDGET = 0.85
QUESTION = "What is in this image?"
SETTLE_S = 2.0
_PROMPT = (  # as the chat template renders it: another prompt has other answers, of other lengths
    f"<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
)
_COLOURS = ("red", "green", "blue", "yellow", "purple", "orange")


def draw(folder: Path, count: int) -> list[Path]:
    """Draw different images: a circle, and a text that the model does not know."""
    paths = []
    for number in range(count):
        image = Image.new("RGB", (224, 224), "white")
        pen = ImageDraw.Draw(image)
        pen.ellipse((60, 60, 160, 160), fill=_COLOURS[number % 6])
        pen.text((4, 4), f"{folder.name} {number}", fill="black")
        paths.append(folder / f"{number:04}.png")
        image.save(paths[-1])
    return paths


async def batch(engine: Engine, model: Model, pictures: list[Path], *, most: int | None = None) -> float:
    """Return the seconds that a batch takes, writing its output included."""
    folder = pictures[0].parent
    source = folder / "in.jsonl"
    asked = ({"id": path.name, "images": [path.name], "prompt": QUESTION} for path in pictures)
    source.write_text("".join(json.dumps(item) + "\n" for item in asked))
    (folder / "out.jsonl").unlink(missing_ok=True)

    async def opened() -> Engine:
        return engine

    tally = Tally()
    with closing(OutputFile(folder / "out.jsonl")) as output, source.open("rb") as file:
        sampling = Sampling(max_tokens=40)
        job = BatchJob(family=model.family, model="shapes", sampling=sampling, cache=folder / "cache")
        items = map(output.match, BatchReader(file, base=folder))
        started = time.monotonic()
        await answer_items(job, items, BatchEngine(opened, engine, most=most), output.append, tally)
        output.tidy()
        elapsed = time.monotonic() - started
    assert tally.answered == len(pictures), tally
    return elapsed


def used_so_far(pid: int, *, client: bool) -> dict[str, float]:
    """Return the seconds of processor time of a process and its children: vLLM's own, which schedule and compute, and
    the others, which render prompts and prepare images. `client`: also of this process."""
    root = psutil.Process(pid)
    used = {"client": time.process_time()} if client else {}
    used |= {"engine": 0.0, "front": 0.0}
    for process in (root, *root.children(recursive=True)):
        times = process.cpu_times()
        used["engine" if process.name().startswith("VLLM::") else "front"] += times.user + times.system
    return used


def told(now: dict[str, float], before: dict[str, float], count: int) -> str:
    """Return the processor time per item in ms: the total, and that of each process."""
    used = {name: 1000 * (seconds - before[name]) / count for name, seconds in now.items()}
    parts = ", ".join(f"{name} {value:.1f}" for name, value in used.items())
    return f"{sum(used.values()):.1f} ({parts})"


def answer(llm: Any, method: str, paths: list[str], parameters: Any) -> None:
    """Ask as vLLM's examples do: all at once, with the images opened before."""
    images = [Image.open(path).convert("RGB") for path in paths]
    if method == "generate":
        llm.generate([{"prompt": _PROMPT, "multi_modal_data": {"image": image}} for image in images], parameters)
        return
    for_chat = [[{"type": "image_pil", "image_pil": image}, {"type": "text", "text": QUESTION}] for image in images]
    llm.chat([[{"role": "user", "content": parts}] for parts in for_chat], parameters)


def alone(told: int) -> None:
    """Run vLLM's offline `LLM` in this process: one round for each line from stdin."""
    from vllm import LLM, EngineArgs, SamplingParams
    from vllm.platforms import current_platform

    arguments = bundled_arguments(EngineArgs)
    if current_platform.is_cpu():  # as in the worker's engine; it matters on a busy machine
        os.nice(CPU_NICENESS)
    llm = LLM(**arguments)
    parameters = SamplingParams(temperature=0.0, max_tokens=40)
    report(told, "loaded")
    for line in sys.stdin:
        # The other method had the same images in the round before: clear the caches.
        llm.reset_mm_cache()
        assert llm.reset_prefix_cache()
        llm.llm_engine.reset_encoder_cache()
        method, paths = json.loads(line)
        started = time.monotonic()
        answer(llm, method, paths, parameters)
        report(told, time.monotonic() - started)


async def throughput(count: int, rounds: int) -> float:
    """Print items per second; return the median of the ratios."""
    model = resolve(Registry.bundled(), "shapes")
    ratios, single = [], []
    processor: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        paths = Paths.below(Path(place))
        engine = await WorkerHost(paths).open(model.spec, client="benchmark", keep_alive_s=0)
        async for loaded in engine.load():
            if isinstance(loaded, EngineReady):
                print(f"worker loaded in {loaded.info.load_s:.0f} s", flush=True)
        bare = BareVllm("benchmarks.batch", Endpoint.named(paths, "benchmark"))
        await asyncio.to_thread(bare.load)
        for number in range(rounds + 1):
            folder = Path(place) / f"round-{number}"
            folder.mkdir()
            pictures = draw(folder, count if number else 32)
            seconds: dict[str, float] = {}
            processor.clear()
            for name in ("ours", "generate", "chat"):
                await asyncio.sleep(SETTLE_S)
                is_ours = name == "ours"
                pid = engine.pid if is_ours else bare.pid
                before = used_so_far(pid, client=is_ours)
                if is_ours:
                    seconds[name] = await batch(engine, model, pictures)
                else:
                    seconds[name] = await asyncio.to_thread(bare.round, (name, [str(path) for path in pictures]))
                used = used_so_far(pid, client=is_ours)
                processor.append(f"{name} {told(used, before, len(pictures))}")
            if number:
                rates = " · ".join(f"{name} {count / value:.1f}" for name, value in seconds.items())
                print(f"items/s: {rates}", flush=True)
                print(f"processor time, ms an item: {' · '.join(processor)}", flush=True)
                ratios.append(min(seconds["generate"], seconds["chat"]) / seconds["ours"])
                (folder / "alone").mkdir()
                some = draw(folder / "alone", max(8, count // 5))
                alone = await batch(engine, model, some, most=1) / len(some)
                single.append(alone * count / seconds["ours"])
        bare.end()
        await engine.shutdown()
    print(f"one at a time takes {statistics.median(single):.2f} times as long")
    return statistics.median(ratios)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.alone is not None:
        alone(args.alone)
        return 0
    ratio = asyncio.run(throughput(args.items, args.rounds))
    print(f"ratio   {ratio:.3f} of the items/s of vLLM's offline LLM (budget {BUDGET})")
    return 0 if ratio >= BUDGET else 1


if __name__ == "__main__":
    sys.exit(main())
