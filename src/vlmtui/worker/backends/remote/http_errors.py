"""What a server's refusals and a broken connection mean, as errors that say what to do."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Iterator

import httpx2
import msgspec

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.text import one_line

_SETTING = "in config.toml: [engines.NAME]"
CLIENT_CERTIFICATE = f'Name a certificate and key that it accepts {_SETTING} client_cert = "FILE".'
_CA = f'If it is your own, name the certificate that signed it {_SETTING} ca = "FILE".'
_CLOCK = "Have it renewed on the server; is this machine's clock right?"
_HOST = "Give the address by the name that the certificate is made for."
_PLAIN = "Is it http:// instead?"
_CLOSED_HINT = f"Some servers refuse a client without a certificate like that. {CLIENT_CERTIFICATE}"

_CERTIFICATES = {
    9: ("The certificate of {} is not valid yet.", _CLOCK),
    10: ("The certificate of {} has expired.", _CLOCK),
    18: ("The certificate of {} is signed by itself, so nothing vouches for it.", _CA),
    19: ("The certificate of {} is signed by an authority that is not trusted here.", _CA),
    20: ("The certificate of {} is signed by an authority that is not trusted here.", _CA),
    21: ("The certificate of {} is signed by an authority that is not trusted here.", _CA),
    62: ("The certificate of {} is made for another host.", _HOST),
    64: ("The certificate of {} is made for another host.", _HOST),
}
"""By OpenSSL's number of the reason (`X509_V_ERR_…`)."""
_REASONS = (
    ("CERTIFICATE_REQUIRED", "{} asks for a certificate of its clients.", CLIENT_CERTIFICATE),
    ("ALERT_UNKNOWN_CA", "{} does not accept this client's certificate.", CLIENT_CERTIFICATE),
    ("ALERT_BAD_CERTIFICATE", "{} does not accept this client's certificate.", CLIENT_CERTIFICATE),
    ("ALERT_CERTIFICATE", "{} does not accept this client's certificate.", CLIENT_CERTIFICATE),
    ("ALERT_ACCESS_DENIED", "{} does not accept this client's certificate.", CLIENT_CERTIFICATE),
    ("HANDSHAKE_FAILURE", "{} refused the secure connection.", _CLOSED_HINT),
    ("WRONG_VERSION_NUMBER", "{} does not speak TLS.", _PLAIN),
    ("RECORD_LAYER_FAILURE", "{} does not speak TLS.", _PLAIN),
    ("HTTP_REQUEST", "{} does not speak TLS.", _PLAIN),
)
"""By what OpenSSL's reason has in it; an alert is what the server said."""


def secure_connection_failed(error: Exception, *, shown: str) -> VlmtuiError | None:
    """Return what it means; None where the connection failed for another reason."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLError):
            message, hint = _meaning(cause)
            detail = f"{type(cause).__name__}: {cause}"
            return VlmtuiError(ErrorKind.NO_NETWORK, message.format(shown), detail=detail, hint=hint)
    return None


def closed_without_a_word(shown: str, detail: str) -> VlmtuiError:
    """Return the error for a secure connection that the server closed before it answered anything."""
    message = f"{shown} closed the secure connection without an answer."
    return VlmtuiError(ErrorKind.NO_NETWORK, message, detail=detail, hint=_CLOSED_HINT)


def _meaning(error: ssl.SSLError) -> tuple[str, str]:
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _CERTIFICATES:
        return _CERTIFICATES[error.verify_code]
    if isinstance(error, ssl.SSLCertVerificationError):
        return "The certificate of {} is not valid.", _CA
    if isinstance(error, ssl.SSLEOFError):
        return "{} closed the secure connection while it was being made.", _CLOSED_HINT
    for word, message, hint in _REASONS:
        if word in (error.reason or ""):
            return message, hint
    return "The secure connection to {} failed.", f"{_CA} {_PLAIN}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


_TEXT_MAX = 400
NOT_NOW = (502, 503, 504)
"""What servers, and proxies in front of one, answer while it loads a model or is away for a moment."""
_PROXY_ON_TLS = re.compile(
    r"(SSL certificate (?:was sent|error))|plain HTTP request was sent to HTTPS port", re.IGNORECASE
)
"""What nginx says in its page: no certificate or a wrong one, and `http://` where it is `https://`."""
_AGAIN = "Send the message again."
_NO_KEY = (
    "Name the variable that holds it: --key-env NAME, or in config.toml: [engines.NAME] api_key_env (or api_key_file)."
)
_WRONG_KEY = "Check the variable or file that holds it. A worker that runs reads it anew after `vlmtui stop`."


class NothingListens(VlmtuiError):
    """No server is at the address, or not yet."""


class ConnectionBroken(VlmtuiError):
    """A connection that broke before anything of an answer came."""


class Unanswered(VlmtuiError):
    """A server, or its machine, that takes connections and does not answer in time."""


class ServerError(VlmtuiError):
    """A refusal, or an error event in a stream. `code` is the HTTP status that it has, 0 where there is none."""

    def __init__(self, kind: ErrorKind, message: str, code: int, *, detail: str = "", hint: str = "") -> None:
        super().__init__(kind, message, detail=detail, hint=hint)
        self.code = code


class _Known(msgspec.Struct, frozen=True):
    """A message of a server, and what it means."""

    pattern: str
    kind: ErrorKind
    say: str
    hint: str = ""


_KNOWN = (
    _Known(
        r"max_tokens=(\d+) cannot be greater than max_model_len=(\d+)|'max_tokens' or .* is too large: (\d+)",
        ErrorKind.BAD_INPUT,
        "The answer may not be as long as max_tokens says: that is more than the server's context.",
        "Lower max tokens in the settings, or leave it empty.",
    ),
    _Known(
        r"maximum context length|exceeds model's maximum context"
        r"|exceeds the available context size",
        ErrorKind.CONTEXT_TOO_LONG,
        "The prompt is longer than the server's context.",
        "Shorten the message, make its images smaller, or leave older ones out.",
    ),
    _Known(
        r"At most (\d+) (image|video|audio)\(s\) may be provided",
        ErrorKind.BAD_INPUT,
        "The server takes at most {0} {1}(s) in one prompt.",
        "Start it with --limit-mm-per-prompt for more, or leave some out.",
    ),
    _Known(
        r"Failed to apply prompt replacement",
        ErrorKind.PLACEHOLDER_MISMATCH,
        "The prompt has fewer placeholders than there are attachments.",
        "Use exactly one placeholder for each attachment.",
    ),
    _Known(
        r"Failed to load image|Non-base64 digit|Could not open video stream|cannot identify image",
        ErrorKind.BAD_INPUT,
        "The server can't read one of the attachments.",
        "Its own words are above; they don't name which one.",
    ),
    _Known(
        r"The model `(.*?)` does not exist",
        ErrorKind.MODEL_UNKNOWN,
        "The server doesn't serve a model called {0}.",
        "`vlmtui engines probe URL` lists its models.",
    ),
    _Known(
        r"--trust-request-chat-template",
        ErrorKind.UNSUPPORTED,
        "The server takes no chat template with a request.",
        "Start it with --trust-request-chat-template.",
    ),
    _Known(
        r"--trust-request-mm-kwargs|Per-request mm_processor_kwargs",
        ErrorKind.UNSUPPORTED,
        "The server takes no processor arguments with a request.",
        "Start it with --trust-request-mm-kwargs.",
    ),
    _Known(
        r"--enable-scale-out|Scale-out endpoints are disabled",
        ErrorKind.UNSUPPORTED,
        "The server takes no token ids, so no raw prompt with attachments.",
        "Start it with --enable-scale-out.",
    ),
    _Known(
        r"EngineCore encountered an issue|EngineDeadError|engine (core )?(is )?dead",
        ErrorKind.NO_NETWORK,
        "The server's engine died.",
        "Its own log says why. Once it runs again, send the message again.",
    ),
    _Known(
        r"logprobs.*(max|greater)|Requested sample logprobs",
        ErrorKind.BAD_INPUT,
        "The server gives fewer log-probabilities than asked for.",
        "Ask for fewer, or start it with --max-logprobs.",
    ),
)


def refusal(code: int, body: bytes, content_type: str, *, shown: str, has_key: bool) -> ServerError:
    """Return what a response that is no success means. `shown` is the server's address; `has_key`: a key, or another
    header, was sent."""
    text = _message_of(body)
    if code in (401, 403) and "scale-out" not in text.lower():
        message = f"{shown} refused this key ({code})." if has_key else f"{shown} wants a key ({code}); none was sent."
        hint = _WRONG_KEY if has_key else _NO_KEY
        return ServerError(ErrorKind.BAD_ENGINE_ARGUMENT, message, code, detail=text[:_TEXT_MAX], hint=hint)
    if 300 <= code < 400:
        hint = "Give the address where it really is."
        message = f"{shown} sends requests to another address ({code}), which is not followed: the key would go along."
        return ServerError(ErrorKind.PROTOCOL, message, code, hint=hint)
    if code == 400 and (asked := _PROXY_ON_TLS.search(text)):
        message = "asks for a certificate of its clients" if asked[1] else "speaks TLS"
        hint = CLIENT_CERTIFICATE if asked[1] else "Write https:// instead."
        return ServerError(ErrorKind.NO_NETWORK, f"{shown} {message}.", code, detail=text, hint=hint)
    if "html" in content_type or body.lstrip()[:1] == b"<":
        hint = "Is the address that of vLLM, and is a proxy in between?"
        message = f"{shown} answered with a web page ({code}), not as a model server."
        return ServerError(ErrorKind.PROTOCOL, message, code, detail=text, hint=hint)
    return _known(text, code) or _unknown(text, code, shown)


def event_error(error: object, *, shown: str) -> ServerError:
    """Return what an error inside a stream means."""
    text, code = _text_of(error), error.get("code", 500) if isinstance(error, dict) else 500
    code = code if isinstance(code, int) else 500
    return _known(text, code) or _unknown(text, code, shown)


def broken(error: httpx2.HTTPError | ssl.SSLError, *, shown: str, is_answering: bool) -> VlmtuiError:
    """Return what a broken connection means. `is_answering`: part of an answer has come."""
    detail = f"{type(error).__name__}: {error}"
    if is_answering:
        message = f"The connection to {shown} broke in the middle of the answer."
        return VlmtuiError(ErrorKind.NO_NETWORK, message, detail=detail, hint=f"What came is kept. {_AGAIN}")
    if failed := secure_connection_failed(error, shown=shown):
        return failed
    if isinstance(error, httpx2.ConnectError):
        hint = "Is it running, and is the address right?"
        return NothingListens(ErrorKind.NO_NETWORK, f"Nothing listens at {shown}.", detail=detail, hint=hint)
    if isinstance(error, httpx2.TimeoutException):
        return Unanswered(ErrorKind.NO_NETWORK, f"{shown} did not answer in time.", detail=detail, hint=_AGAIN)
    if shown.startswith("https:") and isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError):
        return closed_without_a_word(shown, detail)
    return ConnectionBroken(ErrorKind.NO_NETWORK, f"The connection to {shown} broke.", detail=detail, hint=_AGAIN)


def endless(shown: str) -> VlmtuiError:
    """Return the error for a server that sends without an end."""
    message = f"{shown} sends more than an answer can hold."
    return VlmtuiError(ErrorKind.PROTOCOL, message, hint="Is it a model server?")


def _known(text: str, code: int) -> ServerError | None:
    for known in _KNOWN:
        if match := re.search(known.pattern, text, re.IGNORECASE):
            groups = [one_line(group or "") for group in match.groups()]
            message = re.sub(r"\{(\d)\}", _group(groups), known.say)
            return ServerError(known.kind, message, code, detail=text[:_TEXT_MAX], hint=known.hint)
    return None


def _group(groups: list[str]) -> Callable[[re.Match[str]], str]:
    return lambda match: groups[int(match[1])]


def _unknown(text: str, code: int, shown: str) -> ServerError:
    kind = ErrorKind.BAD_INPUT if 400 <= code < 500 else ErrorKind.INTERNAL
    said = one_line(text)[:_TEXT_MAX] or "(nothing)"
    return ServerError(
        kind, f"{shown} refused the request ({code}).", code, detail=said, hint="Its own words are above."
    )


def _message_of(body: bytes) -> str:
    try:
        decoded = json.loads(body)
    except (ValueError, RecursionError):
        return body[:_TEXT_MAX].decode("utf-8", "replace")
    said = _text_of(decoded.get("error", decoded.get("detail", decoded)) if isinstance(decoded, dict) else decoded)
    return said.encode(errors="replace").decode()  # half of a surrogate pair could be sent to nobody


def _text_of(error: object) -> str:
    """The five shapes: a text, an object with `message`, with `detail`, a list of these, anything else."""
    match error:
        case str():
            return error
        case {"message": str(text)}:
            return text
        case {"detail": inner} | {"msg": inner}:
            return _text_of(inner)
        case [first, *_]:
            return _text_of(first)
        case _:
            return json.dumps(error)[:_TEXT_MAX]
