"""Recognises failures by patterns in an exception's text, and the patterns for model files and the hub."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from vlmtui.errors import ErrorKind, VlmtuiError

ONE_EACH = "Use exactly one placeholder for each attachment."


def mismatch(message: str, *, detail: str = "", hint: str = ONE_EACH) -> VlmtuiError:
    """Return PLACEHOLDER_MISMATCH, for a prompt whose placeholders do not match its attachments."""
    return VlmtuiError(ErrorKind.PLACEHOLDER_MISMATCH, message, detail=detail, hint=hint)


class FailureRule(msgspec.Struct, frozen=True):
    """One kind of failure: a pattern of the exception's text, and the message and hint to show."""

    kind: ErrorKind
    pattern: re.Pattern[str]
    message: str
    hint: str | Callable[[re.Match[str]], str]


def classify(text: str, rules: Iterable[FailureRule], *, detail: str) -> VlmtuiError | None:
    for rule in rules:
        found = rule.pattern.search(text)
        if found:
            hint = rule.hint if isinstance(rule.hint, str) else rule.hint(found)
            return VlmtuiError(rule.kind, rule.message, detail=detail, hint=hint)
    return None


FILE_RULES: tuple[FailureRule, ...] = (
    FailureRule(
        ErrorKind.GATED_REPO,
        re.compile(
            r"gated repo|GatedRepoError|Access to model .* is restricted|awaiting a review|401 Client Error", re.I
        ),
        "This model is gated: you must accept its terms first.",
        "Accept the terms on the model's page, then log in: hf auth login (or set HF_TOKEN).",
    ),
    FailureRule(
        ErrorKind.WEIGHTS_MISSING,
        re.compile(
            r"Cannot find any model weights|no safetensors|does not contain.*weights|MetadataIncompleteBuffer"
            r"|InvalidHeaderDeserialization|SafetensorError|config file at .* is not a valid JSON"
            r"|not initialized from checkpoint"
        ),
        "Model files are missing or incomplete.",
        "Download the model again; an interrupted download leaves files out.",
    ),
    FailureRule(
        ErrorKind.MODEL_UNKNOWN,
        re.compile(
            r"RepositoryNotFoundError|404 Client Error|is not a local folder and is not a valid model identifier"
            r"|Repo id must be in the form|Repo id must use alphanumeric|Invalid repository ID or local directory"
        ),
        "No such model: it is neither a folder with a config.json nor a repository on the hub that you can access.",
        "Check the name; for a private model log in: hf auth login.",
    ),
    FailureRule(
        ErrorKind.NO_NETWORK,
        re.compile(
            r"couldn't connect to|We have no connection|Name or service not known|Temporary failure in name resolution"
            r"|Max retries exceeded|LocalEntryNotFoundError|offline mode|OfflineModeIsEnabled|Network is unreachable",
            re.IGNORECASE,
        ),
        "The model is not on this machine, and the hub cannot be reached.",
        "Check the network (HTTPS_PROXY, HF_ENDPOINT, HF_HUB_OFFLINE), or give a local folder.",
    ),
    FailureRule(
        ErrorKind.REMOTE_CODE_REFUSED,
        re.compile(
            r"contains custom code which must be executed|argument .?trust_remote_code=True|--trust-remote-code"
            r"|requires you to execute the"
        ),
        "This model comes with its own Python code, which needs your permission to run.",
        "Read the code, then allow it with --trust-remote-code.",
    ),
)
"""Failures of a model's files and of the hub, the same in every engine."""
