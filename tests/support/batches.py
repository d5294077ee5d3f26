"""Batches on an engine that repeats its questions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import repeat
from pathlib import Path

import msgspec

from tests.support.scripted_engine import ScriptedEngine, scripted_info
from vlmtui.domain.conversation import attachments_of
from vlmtui.domain.generation import (
    Cancelled,
    Delta,
    EngineEvent,
    Failed,
    Failure,
    Finished,
    PromptReady,
    Request,
    Timings,
    Usage,
)
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind
from vlmtui.registry.loader import Registry
from vlmtui.session.batch.items import BatchReader, Item
from vlmtui.session.batch.results import OutputFile
from vlmtui.session.batch.run import BatchEngine, BatchJob, Tally, answer_items

Trouble = Callable[[str], ErrorKind | None]
"""Returns the failure for a question, or None. ENGINE_DIED ends the engine."""


class Gate:
    """Blocks requests until `count` of them wait, then opens for good."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._open = asyncio.Event()

    async def enter(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self._open.set()
        await self._open.wait()


class RepeatingEngine(ScriptedEngine):
    """Answers "said: ", the question, and the number of its images. `most`: the maximum number of requests at once."""

    def __init__(self, trouble: Trouble = lambda question: None) -> None:
        super().__init__()
        self.trouble = trouble
        self.info = scripted_info()
        self.asked: list[str] = []
        self.most = self.now = 0
        self.gate: Gate | None = None

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            async for event in self._events_of(request):
                yield event
        finally:
            self.now -= 1

    async def _events_of(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        question = question_of(request)
        self.asked.append(question)
        rid = request.request_id
        if self.gate is not None:
            await self.gate.enter()
        yield PromptReady(request_id=rid, prompt=question, token_ids=(1, 2), media=(), used=request.sampling)
        for _ in range(3):
            await asyncio.sleep(0)
            if not self.alive:
                yield Failed(request_id=rid, failure=Failure(kind=ErrorKind.ENGINE_DIED, message="It was killed."))
                return
        match self.trouble(question):
            case ErrorKind.ENGINE_DIED:
                self.die()
                yield Failed(request_id=rid, failure=Failure(kind=ErrorKind.ENGINE_DIED, message="It died."))
            case ErrorKind.NOT_KEPT:
                yield Cancelled(request_id=rid, usage=Usage(), timings=Timings())
            case None:
                text = f"said: {question} {len(attachments_of(request.prompt))}"
                yield Delta(request_id=rid, text=text, tokens=2, token_ids=(3, 4))
                usage = Usage(prompt_tokens=2, completion_tokens=2)
                timings = Timings(ttft_s=0.01, total_s=0.02)
                yield Finished(request_id=rid, finish_reason="stop", usage=usage, timings=timings)
            case kind:
                yield Failed(request_id=rid, failure=Failure(kind=kind, message="It was refused."))


def question_of(request: Request) -> str:
    """Return the text of the last message, or the raw prompt."""
    prompt = request.prompt
    return prompt.turns[-1].text if hasattr(prompt, "turns") else str(getattr(prompt, "text", ""))


class Bench:
    """Runs batches in a folder: `input` is read, `lines` are written."""

    def __init__(self, folder: Path, trouble: Trouble = lambda question: None) -> None:
        self.folder = folder
        self.input = folder / "in.jsonl"
        self.output = folder / "out.jsonl"
        self.trouble = trouble
        self.engines: list[RepeatingEngine] = []
        self.sampling = Sampling()
        self.gate: Gate | None = None
        self.files: Iterator[str] = repeat("")
        """The digest of the files of each engine that is opened."""

    @property
    def asked(self) -> list[str]:
        """The questions of all requests, in order."""
        return [question for engine in self.engines for question in engine.asked]

    def write(self, *items: Mapping[str, object] | str) -> None:
        """Write the input: one object or text per line."""
        lines = (item if isinstance(item, str) else json.dumps(item) for item in items)
        self.input.write_text("".join(f"{line}\n" for line in lines), "utf-8")

    def questions(self, names: Iterable[object]) -> None:
        """Write an input of questions; each id is the question's name."""
        self.write(*({"id": f"{name}", "prompt": f"question {name}"} for name in names))

    def lines(self) -> list[dict[str, object]]:
        """The lines of the output."""
        return [json.loads(line) for line in self.output.read_text("utf-8").splitlines()]

    def answers(self) -> dict[str, object]:
        """Answers by id. Fails if an id occurs twice."""
        found = {str(line["id"]): line.get("answer") for line in self.lines()}
        assert len(found) == len(self.lines())
        return found

    def items(self) -> Iterator[Item]:
        with self.input.open("rb") as file:
            yield from BatchReader(file, base=self.folder)

    async def run(
        self,
        *,
        retry_errors: bool = False,
        most: int | None = None,
        includes_prompt: bool = False,
    ) -> Tally:
        """Run the batch to its end, as the command does."""
        tally = Tally()
        engine = BatchEngine(self._open, await self._open(), most=most)
        job = BatchJob(
            family=Registry.bundled()["shapes"],
            model="shapes",
            sampling=self.sampling,
            cache=self.folder / "cache",
            includes_prompt=includes_prompt,
        )
        with closing(OutputFile(self.output, retries_failed=retry_errors)) as output:
            await answer_items(job, map(output.match, self.items()), engine, output.append, tally)
            output.tidy()
        return tally

    async def _open(self) -> RepeatingEngine:
        self.engines.append(RepeatingEngine(self.trouble))
        self.engines[-1].gate = self.gate
        self.engines[-1].info = msgspec.structs.replace(scripted_info(), files=next(self.files))
        return self.engines[-1]
