"""The `Backend` of Hugging Face Transformers: loading, and explanations of its exceptions."""

from __future__ import annotations

import re
from functools import partial

from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import ErrorKind
from vlmtui.worker.backends.contract import Backend, HostedEngine, Report, explain_load, explain_request
from vlmtui.worker.backends.vllm.backend import read_progress
from vlmtui.worker.hf.failures import FILE_RULES, ONE_EACH, FailureRule

_MEMORY_RULE = FailureRule(
    ErrorKind.OUT_OF_MEMORY,
    re.compile(
        r"out of memory|OutOfMemoryError|Cannot allocate memory|can't allocate memory|MemoryError|Unable to allocate",
        re.I,
    ),
    "Not enough free memory for this model.",
    "Free memory (vlmtui ps; nvidia-smi), use a smaller model, or more GPUs: --engine-arg device_map=auto.",
)
_LOAD_RULES = (
    FailureRule(
        ErrorKind.NO_ENGINE,
        re.compile(r"No module named '?(?:torch|transformers)\b"),
        "The engine's Python environment has no Transformers.",
        "`vlmtui engines` lists the engines; `vlmtui engines install` installs one that fits this machine.",
    ),
    _MEMORY_RULE,
    FailureRule(
        ErrorKind.NO_GPU,
        re.compile(r"Found no NVIDIA driver|No CUDA GPUs are available|Torch not compiled with CUDA", re.I),
        "There is no GPU that torch can use.",
        "Check nvidia-smi and CUDA_VISIBLE_DEVICES, or leave the engine argument `device` out.",
    ),
    FailureRule(
        ErrorKind.BAD_ENGINE_ARGUMENT,
        re.compile(r"(?:requires|needs) the following packages|This modeling file requires|requires the \S+ library"),
        "The model needs a package that is not installed.",
        "Install it in the engine's environment: the technical part names it.",
    ),
    FailureRule(
        ErrorKind.BAD_ENGINE_ARGUMENT,
        re.compile(r"device_map|offload_(?:folder|dir)|device type at start of device string|Invalid device", re.I),
        "The model can't be spread as device_map says.",
        "Use `auto`, or the name of a device for each part. The technical part names what is wrong.",
    ),
    FailureRule(
        ErrorKind.ARCHITECTURE_UNSUPPORTED,
        re.compile(r"does not recognize this architecture|Unrecognized configuration class|Unrecognized model in"),
        "The installed Transformers does not know this model's architecture.",
        "Another engine may: see vlmtui models.",
    ),
)
_REQUEST_RULES = (
    _MEMORY_RULE,
    FailureRule(
        ErrorKind.PLACEHOLDER_MISMATCH,
        re.compile(
            r"number of image|image tokens?\b.*(?:match|number)|features and (?:image )?tokens do not match|"
            r"placeholders?.*match|Invalid input|mismatch.*(?:image|video)|StopIteration|list index out of range"
        ),
        "The placeholders in the prompt do not match the attachments.",
        ONE_EACH,
    ),
)


async def load(spec: LoadSpec, report: Report) -> HostedEngine:
    """Load a model. Blocks the event loop."""
    from vlmtui.worker.backends.transformers.engine import load_engine  # importing torch takes seconds

    return await load_engine(spec, report)


BACKEND = Backend(
    title="Transformers",
    load=load,
    read_progress=read_progress,
    explain_load=partial(explain_load, rules=(*_LOAD_RULES, *FILE_RULES)),
    explain_request=partial(explain_request, rules=_REQUEST_RULES),
    computes_in_worker=True,
)
