"""Where a server is: `http://host:8000`, `https://host/v1`, or `unix:/path/to/socket`."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from vlmtui.errors import bad_input
from vlmtui.text import one_line

_FORMS = "Write http://HOST:PORT, https://HOST or unix:/PATH."
_SHOWN_MAX = 200


class ServerAddress(msgspec.Struct, frozen=True):
    """The address of a server, without credentials."""

    base: str
    """`http://host:8000`, without a path's last slash and without `/v1`; `http://localhost` for a socket."""
    socket: str | None = None
    """Path of a Unix socket; None: TCP."""

    @property
    def shown(self) -> str:
        """As people write it."""
        return f"unix:{self.socket}" if self.socket else self.base


def server_address(text: str) -> ServerAddress:
    """Parse an address. Raises VlmtuiError(BAD_INPUT) for another form, and for one with a password in it, which is not
    shown."""
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
    if parts.scheme not in ("http", "https") or not parts.hostname or not _is_clean(text):
        raise bad_input(f"Not an address of a server: {shown}.", hint=_FORMS)
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        hint = "Name the key's environment variable or file in config.toml: [engines.NAME] api_key_env = …"
        raise bad_input("An address holds no user, password or query.", hint=hint)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return ServerAddress(f"{parts.scheme}://{host}{f':{port}' if port else ''}{path}")


def _is_clean(text: str) -> bool:
    """Whether all of it is seen: a pasted address may bring characters that are not."""
    return text.isprintable() and " " not in text
