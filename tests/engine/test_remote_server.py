"""The same prompts to the worker's own engine and to a real `vllm serve`: the same tokens, answers, probabilities."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.pictures import Easel
from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Turn, assistant_turn, system_turn, user_turn
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import Delta, Finished, GenerateRequest, PromptReady, TokenLogprob
from vlmtui.domain.prompt import ChatPrompt, Prompt, RawPrompt
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.engine.local.client import WorkerClient
from vlmtui.registry.match import Model
from vlmtui.worker.backends.remote.engine import RemoteEngine, connect_to_server

pytestmark = pytest.mark.engine
SOURCE = Path(__file__).parents[2] / "src"
FLAGS = {
    "--max-model-len": "4096",
    "--max-num-seqs": "8",
    "--dtype": "float32",
    "--limit-mm-per-prompt": json.dumps({"image": 8, "video": 2}),
    "--mm-processor-cache-gb": "0.5",
}
SWITCHES = ("--enforce-eager", "--enable-scale-out", "--trust-request-chat-template")


@pytest.fixture(scope="module")
def address(shapes: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with the bundled model, loading or loaded; it ends with the module."""
    folder = tmp_path_factory.mktemp("serve")
    socket, log = Path(f"/tmp/vlmtui-{os.getpid()}.sock"), folder / "log"
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", shapes.spec.model]
    command += ["--served-model-name", "shapes", "--uds", str(socket), *SWITCHES]
    command += [part for flag in FLAGS.items() for part in flag]
    search = os.pathsep.join([str(SOURCE), str(SOURCE / "vlmtui" / "worker" / "site")])
    environment = {**os.environ, "PYTHONPATH": search, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("wb") as written:
        server = subprocess.Popen(
            command, env=environment, stdout=written, stderr=written, cwd=folder, start_new_session=True
        )
    yield f"unix:{socket}"
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()
    socket.unlink(missing_ok=True)


async def remote(address: str) -> RemoteEngine:
    spec = LoadSpec(model="shapes", name="shapes", backend="remote", engine_args={"url": address, "wait_s": 600})
    return await connect_to_server(spec, lambda step: None)


class Told:
    """What an engine told of one request."""

    def __init__(self) -> None:
        self.prompt: PromptReady | None = None
        self.text = ""
        self.ids: list[int] = []
        self.logprobs: list[TokenLogprob] = []
        self.end: Finished | None = None


async def told(engine: Engine | RemoteEngine, prompt: Prompt, number: int) -> Told:
    found = Told()
    asked = GenerateRequest(request_id=f"r{number}", prompt=prompt, sampling=Sampling(max_tokens=40), logprobs=2)
    async for event in engine.generate(asked):
        match event:
            case PromptReady():
                found.prompt = event
            case Delta():
                found.text += event.text
                found.ids += event.token_ids
                found.logprobs += event.logprobs
            case Finished():
                found.end = event
    return found


def prompts(folder: Path) -> Iterator[tuple[str, Prompt]]:
    """Some thirty prompts of all kinds."""
    easel = Easel(folder)
    names = ("red", "green", "blue", "yellow")
    shapes = ("circle", "square")
    places = ("center", "left")
    drawn = [
        easel.picture((colour, shape, place)) for shape, place in zip(shapes, places, strict=True) for colour in names
    ]
    pictures = [one.attachment for one in drawn]
    clip = easel.clip("red", "circle", "left").attachment
    for number, picture in enumerate(pictures):
        yield f"one picture {number}", chat("What is in this image?", picture)
        yield f"raw {number}", raw("What is in this image?", picture)
    yield "two pictures", chat("What is different?", *pictures[:2])
    yield "two pictures, raw", raw("What is different?", *pictures[:2])
    yield "eight pictures", chat("How many images are there?", *pictures)
    yield "eight pictures, raw", raw("How many images are there?", *pictures)
    yield "video", chat("What moves?", clip)
    yield "video and picture", chat("What is this?", clip, pictures[0])
    for text in ("Hello!", "What can you do?", "naïve café ✓ 日本語", "  spaces  ", "x" * 300):
        yield f"text {text[:9]}", chat(text)
        yield f"raw text {text[:9]}", raw(text)
    system = system_turn("Be brief.")
    first = (user_turn("Look.", pictures[:1]), assistant_turn("A red circle."))
    yield "system", ChatPrompt(turns=(system, user_turn("What is in this image?", pictures[:1])))
    yield "image in turn 2", ChatPrompt(turns=(*first, user_turn("And this one?", pictures[1:2])))
    yield "prefill", raw("What is in this image?", pictures[0], begun="A green")
    yield "answered", ChatPrompt(turns=(user_turn("What is in this image?", pictures[:1]), assistant_turn("A green")))
    yield "about an earlier one", ChatPrompt(turns=(system, *first, user_turn("What colour was it?")))


def chat(text: str, *media: Attachment) -> ChatPrompt:
    return ChatPrompt(turns=(Turn("user", user_turn(text, media).parts),))


def raw(text: str, *media: Attachment, begun: str = "") -> RawPrompt:
    pads = "<|vision_start|><|image_pad|><|vision_end|>" * len(media)
    return RawPrompt(
        text=f"<|im_start|>user\n{pads}{text}<|im_end|>\n<|im_start|>assistant\n{begun}", attachments=tuple(media)
    )


async def test_a_server_gives_what_the_worker_gives(address: str, engine: WorkerClient, tmp_path: Path) -> None:
    server = await remote(address)
    differing: list[str] = []
    count = 0
    for count, (name, prompt) in enumerate(prompts(tmp_path), 1):
        here, there = await told(engine, prompt, count), await told(server, prompt, count)
        assert here.prompt is not None and there.prompt is not None
        same = {
            "prompt ids": here.prompt.token_ids == there.prompt.token_ids,
            "prompt": here.prompt.prompt == there.prompt.prompt,
            "media": places(here.prompt) == places(there.prompt),
            "answer ids": here.ids == there.ids,
            "answer": here.text == there.text,
            "log-probabilities": close(here.logprobs, there.logprobs),
            "end": here.end is not None and there.end is not None and here.end.stop == there.end.stop,
        }
        differing += [f"{name}: {what}" for what, is_same in same.items() if not is_same]
    await server.shutdown()
    assert differing == []
    assert count >= 30


def places(prompt: PromptReady) -> list[tuple[str, int, int, int]]:
    return [(span.modality, span.index, span.offset, span.length) for span in prompt.media]


def close(one: list[TokenLogprob], other: list[TokenLogprob]) -> bool:
    """The same tokens, as likely; of alternatives only the likeliest, as those of no weight change places."""
    return len(one) == len(other) and all(
        a.token_id == b.token_id and abs(a.logprob - b.logprob) < 1e-3 for a, b in zip(one, other, strict=True)
    )
