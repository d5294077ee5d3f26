"""The stand-in engine: a real worker with the real guardian and server, whose tokens arrive at a given pace.

The question `say COUNT RATE NAME` is answered with COUNT tokens of Markdown, RATE per second (0: as fast as possible);
the first token is `⟨NAME`, the last one `NAME⟩`. `give KIND SIZE NAME` is answered with one of `bad_answers`. The times
of requests are written to the file $STREAMING_NOTES, one JSON object per line.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import msgspec

from benchmarks.streaming.bad_answers import pieces
from tests.support.scripted_engine import prompt_text, scripted_info, scripted_prompt
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import (
    Delta,
    EngineEvent,
    Finished,
    GenerateRequest,
    RenderRequest,
    Request,
    Timings,
    Usage,
)
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.host import WorkerHost
from vlmtui.engine.local.launcher import Launcher, WorkerProgram
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve
from vlmtui.session.generation import make_request
from vlmtui.worker import guardian, serve
from vlmtui.worker.backends.contract import Backend, Report

NOTES = "STREAMING_NOTES"
QUESTION = re.compile(r"say (\d+) (\d+) (\w+)")
BAD_QUESTION = re.compile(r"give (\w+) (\d+) (\w+)")
_PARAGRAPHS = """\
# What is in the picture

The **red circle** stands at the left of a *blue square*, and below both of them runs a thin green line that ends at \
the border. Nothing else can be told apart from the background, which is light grey.

- the circle is `filled`, and about as wide as the square
- the square has an outline of two pixels
- the line is not straight: it bends near its middle

1. Measure the circle first, since its centre is where the others are counted from.
2. Then the distance to the square, along the line that joins their centres.

```python
def distance(one: Shape, other: Shape) -> float:
    return math.hypot(one.x - other.x, one.y - other.y)
```

> A picture that was made smaller keeps its proportions, but not its thin lines.

| shape | colour | place |
| --- | --- | --- |
| circle | red | left |
| square | blue | right |

"""
_TOKENS = re.findall(r"\s*\w+|\s*[^\w\s]+|\s+", _PARAGRAPHS)


def _model_spec() -> LoadSpec:
    return resolve(Registry.bundled(), "shapes").spec


SPEC = _model_spec()


def host(paths: Paths) -> WorkerHost:
    """Return a host that starts this module's workers."""
    words = ("-m", "benchmarks.streaming.engine")
    return WorkerHost(paths, Launcher(lambda spec: WorkerProgram(words)))


def request(question: str) -> GenerateRequest:
    """Return a question as the app would send it."""
    return make_request(resolve(Registry.bundled(), "shapes").family, [user_turn(question)], Sampling())


def tokens(count: int, name: str) -> Iterator[str]:
    """Return the tokens of an answer."""
    yield f"⟨{name} "
    yield from itertools.islice(itertools.cycle(_TOKENS), max(0, count - 2))
    yield f" {name}⟩"


class Note(msgspec.Struct, frozen=True):
    """The times of a request, by `time.monotonic`."""

    name: str
    came: float
    first: float
    last: float


def read_notes(path: Path) -> list[Note]:
    """Return the notes so far."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Note) for line in lines]


class Talker:
    """The stand-in engine, as the worker runs it."""

    def __init__(self, spec: LoadSpec) -> None:
        self.info = msgspec.structs.replace(scripted_info(spec), max_model_len=1_000_000)

    @classmethod
    async def load(cls, spec: LoadSpec, report: Report) -> Talker:
        return cls(spec)

    async def died(self) -> None:
        await asyncio.Event().wait()

    async def shutdown(self) -> None:
        return

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        came = time.monotonic()
        yield scripted_prompt(request)
        asked = None if isinstance(request, RenderRequest) else _asked(prompt_text(request.prompt))
        if asked is not None:
            name, rate, texts = asked
            first = last = 0.0
            for number, token in enumerate(texts):
                if rate:
                    await asyncio.sleep(max(0.0, came + number / rate - time.monotonic()))
                elif number % 20 == 0:
                    await asyncio.sleep(0)
                last = time.monotonic()
                first = first or last
                yield Delta(request_id=request.request_id, text=token, tokens=1, token_ids=(number,))
            write_note(name, came, first, last)
        yield Finished(request_id=request.request_id, finish_reason="stop", usage=Usage(), timings=Timings())


def _asked(prompt: str) -> tuple[str, int, Iterator[str]] | None:
    """Return the name, the tokens per second and the tokens of the answer to the last question; None if it is no such
    question."""
    said, given = list(QUESTION.finditer(prompt)), list(BAD_QUESTION.finditer(prompt))
    if given and (not said or given[-1].start() > said[-1].start()):
        kind, size, name = given[-1].groups()
        return name, 0, pieces(kind, int(size), name)
    if not said:
        return None
    count, rate, name = said[-1].groups()
    return name, int(rate), tokens(int(count), name)


def write_note(name: str, came: float, first: float, last: float) -> None:
    """Append a note to the file $STREAMING_NOTES."""
    note = json.dumps({"name": name, "came": came, "first": first, "last": last})
    with Path(os.environ[NOTES]).open("a") as notes:
        notes.write(f"{note}\n")


if __name__ == "__main__":
    if "--guardian" in sys.argv:
        sys.exit(serve.main(sys.argv[1:], Backend(title="Talker", load=Talker.load)))
    sys.exit(guardian.main(sys.argv[1:], server="benchmarks.streaming.engine"))
