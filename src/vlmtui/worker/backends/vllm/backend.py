"""vLLM as a backend. Load progress is read from the lines of vLLM's log."""

from __future__ import annotations

import re

from vlmtui.domain.engine import LoadSpec, LoadStage
from vlmtui.worker.backends.contract import Backend, HostedEngine, LoadStep, Report
from vlmtui.worker.backends.vllm.failures import explain_death, explain_load, explain_request

_PREFIX = re.compile(r"^(?:\([^)]*pid=\d+\)\s*)?(?:(?:INFO|WARNING|ERROR|DEBUG) [\d-]+ [\d:]+ \[[^\]]*\]\s*)?")

_MARKS: tuple[tuple[LoadStage, re.Pattern[str]], ...] = (
    (LoadStage.CONFIG, re.compile(r"Resolved architecture: (?P<detail>\S+)")),
    (LoadStage.CONFIG, re.compile(r"(?P<detail>Initializing a V1 LLM engine)")),
    (LoadStage.WEIGHTS, re.compile(r"(?P<detail>Starting to load model)")),
    (
        LoadStage.WEIGHTS,
        re.compile(r"Loading .*checkpoint shards:\s*(?P<percent>\d+)% Completed \| (?P<detail>\d+/\d+)"),
    ),
    (LoadStage.WEIGHTS, re.compile(r"(?P<detail>\S+\.(?:safetensors|bin|pt)):\s*(?P<percent>\d+)%\|")),
    (LoadStage.WEIGHTS, re.compile(r"(?P<detail>Loading (?:weights|checkpoint shards)):\s*(?P<percent>\d+)%\|")),
    (LoadStage.WEIGHTS, re.compile(r"Fetching (?P<detail>\d+ files):\s*(?P<percent>\d+)%\|")),
    (LoadStage.MEMORY, re.compile(r"(?P<detail>(?:Loading weights|Model loading) took [^;]*)")),
    (LoadStage.MEMORY, re.compile(r"(?P<detail>Available KV cache memory: [\d.]+ \w+)")),
    (LoadStage.MEMORY, re.compile(r"(?P<detail>KV cache size: [\d,]+ tokens)")),
    (LoadStage.COMPILE, re.compile(r"(?P<detail>Dynamo bytecode transform|Compiling a graph|torch\.compile takes)")),
    (LoadStage.COMPILE, re.compile(r"(?P<detail>Capturing CUDA graphs?)[^:]*:\s*(?P<percent>\d+)%")),
    (LoadStage.COMPILE, re.compile(r"(?P<detail>Graph capturing finished in \d+ secs)")),
    (LoadStage.WARMUP, re.compile(r"(?P<detail>init engine \(.*\) took [\d.]+ s)")),
)


def read_progress(line: str) -> LoadStep | None:
    """Return the progress that a log line of vLLM, Transformers or the hub's client reports, or None."""
    text = _PREFIX.sub("", line)
    for stage, pattern in _MARKS:
        found = pattern.search(text)
        if found:
            groups = found.groupdict()
            percent = groups.get("percent")
            fraction = None if percent is None else min(100, int(percent)) / 100
            return LoadStep(stage, (groups.get("detail") or "").strip(), fraction)
    return None


async def load(spec: LoadSpec, report: Report) -> HostedEngine:
    """Load a model. Blocks the event loop."""
    from vlmtui.worker.backends.vllm.engine import load_engine  # importing vLLM takes seconds

    return await load_engine(spec, report)


BACKEND = Backend(
    title="vLLM",
    load=load,
    read_progress=read_progress,
    explain_load=explain_load,
    explain_request=explain_request,
    explain_death=explain_death,
)
