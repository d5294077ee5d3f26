"""vLLM's offline `LLM` in its own process, for `benchmarks.batch`. Each line to it starts a round."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from vlmtui.engine.local.launcher import worker_environment
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve
from vlmtui.worker.backends.contract import CPU_NICENESS
from vlmtui.worker.backends.vllm.engine_args import CPU_ENVIRONMENT, ENVIRONMENT, engine_arguments

_PROMPT = (  # as the chat template renders it: another prompt has other answers, of other lengths
    "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>{question}<|im_end|>\n<|im_start|>assistant\n"
)


class OfflineVllm:
    """The process. Blocking."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._results, told = os.pipe()
        environment = {**ENVIRONMENT, **CPU_ENVIRONMENT, **worker_environment(os.environ, endpoint)}
        command = [sys.executable, "-m", "benchmarks.batch_vllm", str(told)]
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(told,),
            start_new_session=True,  # a group of its own, as the worker has, whose priority is lowered
        )
        os.close(told)
        self._lines = os.fdopen(self._results)

    @property
    def pid(self) -> int:
        return self._process.pid

    def load(self) -> None:
        assert self._lines.readline() == "loaded\n"

    def round(self, method: str, pictures: list[Path], question: str) -> float:
        """Return the seconds for one question about each image."""
        assert self._process.stdin is not None
        order = {"method": method, "pictures": [str(path) for path in pictures], "question": question}
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        seconds: float = json.loads(self._lines.readline())
        return seconds

    def end(self) -> None:
        self._process.communicate()
        self._lines.close()


def answer(llm: Any, order: dict[str, Any], parameters: Any) -> None:
    """Ask as vLLM's examples do: all at once, with the images opened before."""
    from PIL import Image

    images = [Image.open(path).convert("RGB") for path in order["pictures"]]
    if order["method"] == "generate":
        text = _PROMPT.format(question=order["question"])
        llm.generate([{"prompt": text, "multi_modal_data": {"image": image}} for image in images], parameters)
        return
    llm.chat(
        [
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_pil", "image_pil": image},
                        {"type": "text", "text": order["question"]},
                    ],
                }
            ]
            for image in images
        ],
        parameters,
    )


def main() -> int:
    from dataclasses import fields

    from vllm import LLM, EngineArgs, SamplingParams
    from vllm.platforms import current_platform

    told = int(sys.argv[1])
    spec = resolve(Registry.bundled(), "shapes").spec
    known = {field.name for field in fields(EngineArgs)}
    arguments: dict[str, Any] = engine_arguments(spec, known=known, on_cpu=current_platform.is_cpu())
    if current_platform.is_cpu():  # as in the worker's engine; it matters on a busy machine
        os.nice(CPU_NICENESS)
    llm = LLM(**arguments)
    parameters = SamplingParams(temperature=0.0, max_tokens=40)
    os.write(told, b"loaded\n")
    for line in sys.stdin:
        # The other method had the same images in the round before: clear the caches.
        llm.reset_mm_cache()
        assert llm.reset_prefix_cache()
        llm.llm_engine.reset_encoder_cache()
        started = time.monotonic()
        answer(llm, json.loads(line), parameters)
        os.write(told, json.dumps(time.monotonic() - started).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
