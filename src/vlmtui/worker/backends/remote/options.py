"""The engine arguments of the backend `remote`: a server's address and how to reach it.

The arguments contain no secret. They name an environment variable or a file with the key, which is read here, in the
worker.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from vlmtui.domain.conversation import Modality
from vlmtui.domain.thinking import COMMON_TAGS, ThinkingTags
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.reading import opened
from vlmtui.text import one_line

_FORMS = "Write http://HOST:PORT, https://HOST or unix:/PATH."
_SHOWN_MAX = 200


class ServerAddress(msgspec.Struct, frozen=True):
    """The address of a server, without credentials."""

    base: str
    """The base URL, such as `http://host:8000`, without `/v1`; `http://localhost` for a Unix socket."""
    socket: str | None = None
    """The path of a Unix socket; None: TCP."""

    @property
    def shown(self) -> str:
        """The address as people write it."""
        return f"unix:{self.socket}" if self.socket else self.base


def server_address(text: str) -> ServerAddress:
    """Parse an address. Raises VlmtuiError(BAD_INPUT) for a malformed one, or one with a password, which the error does
    not show."""
    shown = "what is given" if "@" in text else repr(one_line(text)[:_SHOWN_MAX])
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/"):
            raise bad_input(f"No absolute path of a socket: {shown}.", hint=_FORMS)
        return ServerAddress("http://localhost", path)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise bad_input(f"Not an address: {shown}.", hint=_FORMS) from error
    is_clean = text.isprintable() and " " not in text  # a pasted address may have invisible characters
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_clean:
        raise bad_input(f"Not an address of a server: {shown}.", hint=_FORMS)
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        hint = "Name the key's environment variable or file in config.toml: [engines.NAME] api_key_env = …"
        raise bad_input("An address holds no user, password or query.", hint=hint)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return ServerAddress(f"{parts.scheme}://{host}{f':{port}' if port else ''}{path}")


_KEY_BYTES_MAX = 10_000


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a server, from `[engines.NAME]` in config.toml or the command line."""

    url: str
    model: str | None = None
    """The model's name on the server; None: its only model."""
    api_key_env: str | None = None
    api_key_file: str | None = None
    ca: str | None = None
    """A file with certificates to trust instead of the system's."""
    client_cert: str | None = None
    """A file with this client's certificate and key (PEM)."""
    allow_owner: str | None = None
    """Another user, by name or number, who may own the Unix socket. This user and root always may."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """More headers, each read from an environment variable: `env:NAME`."""
    placeholders: dict[Modality, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """The model family's placeholders for each modality; `{i}` stands for a number."""
    thinking: ThinkingTags = COMMON_TAGS
    """The model family's tags of reasoning, put around reasoning that the server sends in a field of its own."""
    wait_s: float = 600.0
    """Seconds to wait for a server that does not listen yet."""
    retry_s: float = 1.0
    """Seconds between two tries to connect while waiting."""
    back_off_s: tuple[float, ...] = (0.5, 2.0)
    """Seconds before each repetition of a request that failed before its answer began."""
    patience_s: float = 300.0
    """The most seconds that a request waits in all for a server that says when to ask again (`Retry-After`)."""
    health_s: float = 10.0
    """The time limit in seconds for the response of `/health`."""
    stall_s: float = 20.0
    """Seconds without an event after which `/health` is checked."""
    deaf_max_s: float = 90.0
    """A request fails after so many seconds in which the server sent no event and `/health` no response."""
    silence_max_s: float = 900.0
    """A request fails after so many seconds without an event, even if `/health` is good."""

    def request_headers(self) -> dict[str, str]:
        """Return the headers of every request. Raises VlmtuiError if the key cannot be read."""
        found = {name: _environment(value.removeprefix("env:")) for name, value in self.headers.items()}
        key = self._key()
        return {**found, "Authorization": f"Bearer {key}"} if key else found

    def _key(self) -> str:
        if self.api_key_env:
            return _environment(self.api_key_env)
        if not self.api_key_file:
            return ""
        path = Path(self.api_key_file).expanduser()
        try:
            with opened(path, bytes_max=_KEY_BYTES_MAX) as file:
                lines = file.read(_KEY_BYTES_MAX).decode("utf-8").strip().splitlines()
        except (OSError, UnicodeDecodeError, VlmtuiError) as error:
            raise _unreadable(f"Can't read the key's file: {path}.", str(error)) from error
        return _sendable(lines[0].strip(), f"The file {path}") if lines else ""


def server_options(arguments: dict[str, object]) -> ServerOptions:
    """Return the options from a spec's engine arguments. Raises VlmtuiError naming the problem."""
    try:
        return msgspec.convert(arguments, ServerOptions)
    except msgspec.ValidationError as error:
        message = "The options of the server are not valid."
        raise VlmtuiError(ErrorKind.BAD_ENGINE_ARGUMENT, message, detail=str(error)) from error


def _environment(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise _unreadable(f"The environment variable {name} is not set.", "")
    return _sendable(value, f"The environment variable {name}")


def _sendable(value: str, place: str) -> str:
    """Return a secret if it can be sent in a header. Otherwise raise VlmtuiError, whose message does not show the
    secret."""
    if not (value.isascii() and value.isprintable()):
        raise _unreadable(f"{place} holds more than a header can: a line break or a letter that is not ASCII.", "")
    return value


def _unreadable(message: str, detail: str) -> VlmtuiError:
    hint = "The engine's process reads it when it starts: set it, and connect again."
    return VlmtuiError(ErrorKind.BAD_ENGINE_ARGUMENT, message, detail=detail, hint=hint)
