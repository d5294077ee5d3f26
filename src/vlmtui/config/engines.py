"""Servers with models that `config.toml` names: `[engines.NAME]`."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from vlmtui.errors import bad_input

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_VARIABLE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*")


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a server is and how to reach it. It holds no secret: a key is named by its variable or file."""

    url: str
    """`http://HOST:PORT`, `https://HOST` or `unix:/PATH`."""
    model: str | None = None
    """The model to use, by the server's name for it; None: its only one."""
    family: str | None = None
    """The model's family, where neither its name nor its root tells it."""
    api_key_env: str | None = None
    """The environment variable that holds the key."""
    api_key_file: str | None = None
    """The file whose first line is the key."""
    ca: str | None = None
    """A file with certificates (PEM) to trust instead of the system's."""
    client_cert: str | None = None
    """A file with this client's certificate and key (PEM)."""
    allow_owner: str | None = None
    """The other user of this machine, by name or number, who may own the Unix socket of `url`. Without it, only you and
    root may."""
    headers: dict[str, str] = {}
    """More headers, each read from an environment variable: `X-Team = "env:TEAM"`."""

    def arguments(self) -> dict[str, object]:
        """Return the engine arguments that reach the server; they name no model."""
        given = msgspec.to_builtins(self)
        return {name: value for name, value in given.items() if value and name not in ("model", "family")}


def check_engines(engines: Mapping[str, EngineSettings], source: str) -> None:
    """Raises VlmtuiError(BAD_INPUT) naming the engine, and what to write instead."""
    for name, engine in engines.items():
        if not _NAME.fullmatch(name):
            hint = "Use small letters, digits, - and _."
            raise bad_input(f"{source}: engines: {name!r} can't be the name of an engine.", hint=hint)
        for header, value in engine.headers.items():
            if not _VARIABLE.fullmatch(value):
                hint = f'A header is read from an environment variable: {header} = "env:NAME".'
                raise bad_input(f"{source}: engines.{name}.headers.{header} is not a variable's name.", hint=hint)
        if engine.api_key_env and engine.api_key_file:
            raise bad_input(f"{source}: engines.{name} has both api_key_env and api_key_file.", hint="Name one.")
