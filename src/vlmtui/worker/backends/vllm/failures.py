"""Read vLLM's exceptions and log lines: the progress of a load, and as a VlmtuiError what happened, why, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from vlmtui.domain.engine import LoadStage
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.backends import contract
from vlmtui.worker.backends.contract import LoadStep, chain_text
from vlmtui.worker.health import describe_exit
from vlmtui.worker.hf.failures import FILE_RULES, ONE_EACH, FailureRule, classify

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


_DETAIL_LINES = 12
_ERROR_LINE = re.compile(
    r"^\s*[\w.]*(?:Error|Exception)(?::|$)|\bERROR\b|\berror:|^Fatal |^terminate called|^\s*what\(\):"
)
_LOG_PREFIX = re.compile(r"^\([^)]*pid=\d+\)\s*|^(?:INFO|WARNING|ERROR) [\d-]+ [\d:]+ \[[^\]]*\]\s*")
_NOT_THE_ENGINE = re.compile(
    r"^\((?:MainProcess|vlmtui) pid=|Dumping (?:input data|scheduler)|See (?:root cause|stack trace)"
    r"|Initializing a V1 LLM engine"
)
"""Matches log lines that do not explain an engine's death: lines of the worker process itself (perhaps about an earlier
request), and dumps of the whole configuration, which may contain any word."""
_IN_THE_CORE = re.compile(
    r"Engine core initialization failed|EngineCore encountered an issue|WorkerProc initialization failed"
)

_FAILED_PROCESSES = re.compile(r"Failed (?:core|frontend) proc\(s\): (\{[^}]*\})")


def _kv_hint(found: re.Match[str]) -> str:
    estimate = re.search(r"estimated maximum model length is (\d+)", found.string)
    size = f"to at most {estimate[1]}" if estimate else "(a shorter context)"
    return f"Lower max_model_len {size}, raise gpu_memory_utilization, or use a smaller model."


_ENGINE_RULES: tuple[FailureRule, ...] = (
    *FILE_RULES,
    FailureRule(
        ErrorKind.UNSUPPORTED,
        re.compile(r"thinking_token_budget is set but reasoning_config is not configured"),
        "This engine has no limit for the tokens of reasoning: thinking_budget.",
        "Load the model with the engine argument reasoning_config = "
        '{reasoning_start_str = "<think>", reasoning_end_str = "</think>"}, with the tags of the model.',
    ),
    FailureRule(
        ErrorKind.NO_ENGINE,
        re.compile(r"No module named '?vllm\b"),
        "The engine's Python environment has no vLLM.",
        "`vlmtui engines` lists the engines; `vlmtui engines install` installs one that fits this machine.",
    ),
    FailureRule(
        ErrorKind.NO_GPU,
        re.compile(
            r"Found no NVIDIA driver|No CUDA GPUs are available|Failed to infer device type|no CUDA-capable device"
            r"|libcuda(?:rt)?\.so|CUDA driver version is insufficient|Can't initialize NVML",
            re.IGNORECASE,
        ),
        "This build of vLLM needs a GPU, and none was found.",
        "Check nvidia-smi and CUDA_VISIBLE_DEVICES, or `vlmtui engines install --variant cpu`.",
    ),
    FailureRule(
        ErrorKind.OUT_OF_MEMORY,
        re.compile(
            r"larger than the available KV cache|No available memory for the cache blocks|Cannot auto-fit max_model_len"
        ),
        "The model's context does not fit in the memory left after loading the weights.",
        _kv_hint,
    ),
    FailureRule(
        ErrorKind.OUT_OF_MEMORY,
        re.compile(
            r"out of memory|OutOfMemoryError|Free memory on device|less than desired|MemoryError|bad_alloc"
            r"|can(?:no|')t allocate memory|Unable to allocate",
            re.I,
        ),
        "Not enough free memory for this model.",
        "Free memory (vlmtui ps; nvidia-smi), lower gpu_memory_utilization or max_model_len, or use more GPUs.",
    ),
    FailureRule(
        ErrorKind.ARCHITECTURE_UNSUPPORTED,
        re.compile(r"are not supported for now|has no vLLM implementation|does not recognize this architecture"),
        "The installed vLLM does not know this model's architecture.",
        "A newer (or older) vLLM may: see vlmtui models.",
    ),
    FailureRule(
        ErrorKind.BAD_ENGINE_ARGUMENT,
        re.compile(
            r"unexpected keyword argument|validation errors? for \w+Config|must be divisible by"
            r"|error: (?:unrecognized arguments|argument --)"
        ),
        "This vLLM rejects an engine argument.",
        "Correct it in the settings or in the model's record.",
    ),
)
"""Failures that keep an engine from starting, or kill it."""
_REQUEST_RULES: tuple[FailureRule, ...] = (
    FailureRule(
        ErrorKind.NOT_KEPT,
        re.compile(r"Cache miss for \w+ at index \d+ but data is not provided"),
        "The engine's cache lacks an image of this request.",
        "Send it with its content.",
    ),
    FailureRule(
        ErrorKind.CONTEXT_TOO_LONG,
        re.compile(r"longer than the maximum model length|maximum context length|exceeds the.*max_model_len", re.I),
        "The conversation does not fit in the model's context.",
        "Start a new chat, attach fewer or smaller images, or load the model with a longer max_model_len.",
    ),
    FailureRule(
        ErrorKind.PLACEHOLDER_MISMATCH,
        re.compile(r"Failed to apply prompt replacement|placeholder tokens? .*match|Expected there to be \d+ prompt"),
        "The placeholders in the prompt do not match the attachments.",
        ONE_EACH,
    ),
    FailureRule(
        ErrorKind.BAD_INPUT,
        re.compile(r"At most \d+ \w+\(s\) may be provided"),
        "More images or videos than this engine was started with.",
        "Start a new chat, or remove an attachment.",
    ),
    FailureRule(
        ErrorKind.BAD_INPUT,
        re.compile(r"exceeds the pre-allocated encoder cache size"),
        "An attachment takes more tokens than the engine's encoder cache holds.",
        "Attach a smaller file, or load the model with a higher max_num_batched_tokens.",
    ),
    FailureRule(
        ErrorKind.NO_CHAT_TEMPLATE,
        re.compile(r"chat template.*(?:must|not|no )|no default chat template", re.IGNORECASE),
        "This model has no chat template.",
        "Use a raw prompt instead.",
    ),
    FailureRule(
        ErrorKind.ENGINE_BUSY,
        re.compile(r"cannot accept new requests|(prefill token backlog limit)"),
        "The engine's queue is full.",
        lambda found: (
            "Send the message again later, or load the model with a higher "
            f"{'max_num_queued_tokens' if found[1] else 'max_num_queued_reqs'}."
        ),
    ),
    FailureRule(
        ErrorKind.ENGINE_BUSY,
        re.compile(r"Generation is paused"),
        "The engine is paused.",
        "Send the message again once it resumes.",
    ),
)
"""Failures that only a request can cause."""
_REFUSED_MEDIUM = FailureRule(
    ErrorKind.BAD_INPUT,
    re.compile(r"Failed to apply \w+ on data|aspect ratio must be"),
    "The model's processor rejects an attachment.",
    "Attach it in another size.",
)
"""Tried late: a failure in the processor may have another cause, for example too little memory."""
_REFUSED_REQUEST = FailureRule(
    ErrorKind.BAD_INPUT,
    re.compile(r"^(?:VLLM(?:Client|Validation|NotFound|UnprocessableEntity)|LoRAAdapterNotFound)Error\b", re.MULTILINE),
    "vLLM rejects the request.",
    "Its own words are above.",
)
"""Tried last: vLLM's classes of errors that a request causes."""


def explain_load(error: BaseException, log: Sequence[str], *, name: str) -> VlmtuiError:
    """Explain a failed load of the model `name`. Searches `log`, the newest lines, only if the exception says that
    another process failed."""
    if isinstance(error, VlmtuiError):
        return error
    said = detail = chain_text(error)
    if _IN_THE_CORE.search(said):
        known, detail = _cause_in(log, fallback=said)
    else:
        known = classify(said, _ENGINE_RULES, detail=said)
    message = " ".join([f"{name} could not be loaded.", *_ends_in(said)])
    return known or VlmtuiError(ErrorKind.INTERNAL, message, detail=detail, hint="See the log of the load.")


def explain_server_exit(log: Iterable[str], *, name: str, said: str) -> VlmtuiError:
    """Explain from the log why a server's process ended during its load. `said`: a sentence with its exit code."""
    known, detail = _cause_in(log, fallback=said)
    message = f"{name} could not be loaded. {said}"
    return known or VlmtuiError(ErrorKind.INTERNAL, message, detail=detail, hint="See the log of the load.")


def _ends_in(said: str) -> list[str]:
    """Return a sentence for each process that was killed by a signal. `said`: vLLM's exception, which names the
    processes (`{'EngineCore': -9}`)."""
    failed = _FAILED_PROCESSES.search(said)
    ends = re.findall(r"'([\w-]+)': (-?\d+)", failed[1]) if failed else []
    return [f"{process} {describe_exit(int(code))}." for process, code in ends if int(code) < 0]


def explain_request(error: BaseException, log: Sequence[str] = ()) -> VlmtuiError:
    """Explain a failed request. If the engine died during it, the cause is in the log."""
    text = chain_text(error)
    if not isinstance(error, VlmtuiError) and _IN_THE_CORE.search(text):
        return explain_death(log, fallback=text)
    return contract.explain_request(error, rules=(*_REQUEST_RULES, *_ENGINE_RULES, _REFUSED_MEDIUM, _REFUSED_REQUEST))


def explain_death(log: Iterable[str], *, fallback: str = "") -> VlmtuiError:
    """Return ENGINE_DIED. If an error line of the log tells the cause, its message says so."""
    errors = _errors_in(log)[1]
    detail = "\n".join(dict.fromkeys(errors[-_DETAIL_LINES:])) or fallback
    cause = classify("\n".join(errors), _ENGINE_RULES, detail=detail)
    if cause is None:
        return VlmtuiError(ErrorKind.ENGINE_DIED, "The engine died.", detail=detail)
    return VlmtuiError(ErrorKind.ENGINE_DIED, f"The engine died. {cause.message}", detail=detail, hint=cause.hint)


def _cause_in(log: Iterable[str], *, fallback: str) -> tuple[VlmtuiError | None, str]:
    """Return the cause of a failed load (None if unknown), found in the engine's log lines, and the last of these lines
    as detail."""
    lines, errors = _errors_in(log)
    detail = "\n".join(dict.fromkeys((errors or lines)[-_DETAIL_LINES:])) or fallback
    return classify("\n".join(errors), _ENGINE_RULES, detail=detail), detail


def _errors_in(log: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the log lines of the engine's processes without prefixes, and those among them that report an error."""
    own = [line for line in log if not _NOT_THE_ENGINE.search(line)]
    lines = [_LOG_PREFIX.sub("", _LOG_PREFIX.sub("", line)).rstrip() for line in own]
    return lines, [line for line in lines if _ERROR_LINE.search(line)]
