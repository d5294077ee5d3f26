"""The user's settings, read from `config.toml`, environment variables and the command line. Among them are the servers
that `config.toml` lists under `[engines]`."""

# Annotations are no strings here: msgspec would compile each of them before the first paint.
import difflib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from vlmtui.config.duration import parse_duration
from vlmtui.domain.dials import check_default, default_parameters
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import VlmtuiError, bad_input, require_text
from vlmtui.paths import Paths
from vlmtui.reading import merged, parse_toml, read_whole

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_VARIABLE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*")


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How to reach a server: a table `[engines.NAME]` of `config.toml`. It never contains an API key, only the
    environment variable or the file that holds the key."""

    url: str
    """`http://HOST:PORT`, `https://HOST` or `unix:/PATH`."""
    model: str | None = None
    """The server's name for the model to use; None: its only model."""
    family: str | None = None
    """The model's family, if it can't be told from the model's name."""
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
        """Return the fields that are set, except model and family, as engine arguments for connecting to the server."""
        given = msgspec.to_builtins(self)
        return {name: value for name, value in given.items() if value and name not in ("model", "family")}


def check_engines(engines: Mapping[str, EngineSettings], source: str) -> None:
    """Raise VlmtuiError(BAD_INPUT) if a server's name, header or API key setting is invalid. `source`: the file to name
    in the error."""
    for name, engine in engines.items():
        if not _NAME.fullmatch(name):
            hint = "Use small letters, digits, - and _."
            raise bad_input(f"{source}: engines: {name!r} can't be the name of an engine.", hint=hint)
        for header, value in engine.headers.items():
            if not _VARIABLE.fullmatch(value):
                hint = f'A header is read from an environment variable: {header} = "env:NAME".'
                raise bad_input(f"{source}: engines.{name}.headers.{header} is not the name of a variable.", hint=hint)
        if engine.api_key_env and engine.api_key_file:
            raise bad_input(f"{source}: engines.{name} has both api_key_env and api_key_file.", hint="Name one.")


Graphics = Literal["auto", "kitty", "iterm", "sixel", "sextant", "quadrant", "halfcell", "off"]
ENVIRONMENT_PREFIX = "VLMTUI_"
_ONLY_IN_FILE = frozenset({"keys", "engines", "models", "parameters"})
_BYTES_MAX = 1_000_000


class SamplingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The user's sampling parameters. A parameter that is None comes from the model family's TOML record, or else from
    vlmtui's defaults."""

    temperature: float | None = None
    """0 is greedy: always the most likely token."""
    top_p: float | None = None
    """Sample from the most likely tokens that make up this share of the probability mass, above 0 up to 1."""
    top_k: int | None = None
    """Sample from this many of the most likely tokens; 0: from all."""
    min_p: float | None = None
    """Ignore tokens below this share of the most likely token's probability, 0 to 1."""
    repetition_penalty: float | None = None
    """Above 1: makes tokens that occurred in the prompt or the answer less likely."""
    presence_penalty: float | None = None
    """−2 to 2; above 0: makes tokens that are already in the answer less likely."""
    frequency_penalty: float | None = None
    """−2 to 2; above 0: makes a token less likely the more often it is already in the answer."""
    max_tokens: int | None = None
    """Maximum length of an answer, in tokens."""
    seed: int | None = None
    """The same seed gives the same answer on the same engine."""

    def over(self, base: Sampling | None) -> Sampling:
        """Return `base` (None: the defaults) with those parameters replaced that are set here."""
        chosen = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return msgspec.structs.replace(base or Sampling(), **chosen)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings. In `config.toml` the sampling fields are in the table `[sampling]`."""

    model: str = "shapes"
    """The default model: a family, a repository id or a local folder."""
    keep_alive: str = "5m"
    """How long a model stays loaded after its last client leaves: `5m`, `90s`, `0` (unload at once), `forever`."""
    keep_deleted: str = "30d"
    """How long a deleted conversation can be restored before it and its media are erased: `30d`, `forever`."""
    hang_s: float = 30.0
    """Seconds without a sign of life after which a loaded engine is reported as hung; 0: never."""
    graphics: Graphics = "auto"
    """How images are drawn; `auto` asks the terminal, whose answer may be too late on a slow connection."""
    theme: str = ""
    """The app's theme; empty: the default."""
    system_prompt: str = ""
    """The system prompt of new conversations; empty: none."""
    sampling: SamplingSettings = SamplingSettings()
    """Default sampling parameters."""
    parameters: dict[str, object] = {}
    """Further parameters of new conversations by name, as for `/set`: `stop = "END"`, `max_pixels = 200704`. Arguments
    of a processor apply to the models whose processor has them."""
    models: dict[str, dict[str, object]] = {}
    """The same for one model, by its name or its family: `[models."Qwen/Qwen3.5-9B"]`, `thinking = false`."""
    keys: dict[str, object] = {}
    """Key bindings by action id: `attach = "ctrl+a"`, a list of keys, or `""` for none. The app checks them; an invalid
    one is a warning."""
    engines: dict[str, EngineSettings] = {}
    """Servers by name, for `--engine NAME` and the list of models."""

    def parameters_of(self, family: str, model: str) -> dict[str, object]:
        """Return the parameters of new conversations with a model. Values for the model's name win over values for its
        family, and these over values for all models."""
        return {**self.parameters, **self.models.get(family, {}), **self.models.get(model, {})}

    @property
    def keep_alive_s(self) -> float | None:
        """`keep_alive` in seconds; None: forever."""
        return parse_duration(self.keep_alive)

    @property
    def keep_deleted_s(self) -> float | None:
        """`keep_deleted` in seconds; None: forever."""
        return parse_duration(self.keep_deleted)


def config_file(paths: Paths) -> Path:
    return paths.config / "config.toml"


def load_settings(
    paths: Paths, environment: Mapping[str, str], command_line: Mapping[str, object] | None = None
) -> Settings:
    """Return the effective settings. `command_line`: values by field name, including the fields of sampling; None: the
    option was not given.

    Raises VlmtuiError(BAD_INPUT) naming the file or variable, and the invalid field.
    """
    settings = Settings()
    file = config_file(paths)
    settings = _with(settings, _read(file), str(file))
    for name in setting_names():
        variable = _variable(name)
        if name not in _ONLY_IN_FILE and (value := environment.get(variable)):
            require_text(value, f"{variable} is not UTF-8.")
            settings = _with(settings, _nested(name, value), variable, strict=False)
    for name in setting_names():
        option = (command_line or {}).get(name.rpartition(".")[2])
        if option is not None:
            source = f"--{name.rpartition('.')[2].replace('_', '-')}"
            require_text(str(option), f"{source} is not UTF-8.")
            settings = _with(settings, _nested(name, option), source)
    return settings


def sources(paths: Paths, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the source (file path or variable name) of each setting that differs from the default. Raises
    VlmtuiError."""
    file = config_file(paths)
    given = _read(file)
    found: dict[str, str] = {}
    for name in setting_names():
        value: object = given
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if name not in _ONLY_IN_FILE and environment.get(_variable(name)):
            found[name] = _variable(name)
        elif value is not None:
            found[name] = str(file)
    return found


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.rpartition(".")[2].upper()


def _read(file: Path) -> dict[str, object]:
    if not os.path.lexists(file):
        return {}
    try:
        data = read_whole(file, bytes_max=_BYTES_MAX, may_be_empty=True)
    except VlmtuiError as error:
        raise bad_input(f"Can't read {file}: {error.message}", detail=error.detail, hint=error.hint) from error
    try:
        return parse_toml(data)
    except ValueError as error:
        raise bad_input(f"{file} is not valid TOML: {error}.") from error


def _with(settings: Settings, given: Mapping[str, object], source: str, *, strict: bool = True) -> Settings:
    """Return the settings with the given fields replaced. `source`: the file, variable or option to name in errors."""
    _check_names(given, Settings, source, "")
    try:
        made = msgspec.convert(merged(msgspec.to_builtins(settings), given), Settings, strict=strict)
    except msgspec.ValidationError as error:
        raise bad_input(f"{source}: {_reworded(error)}.", hint=_hint_about_keys(given)) from error
    for name, duration in (("keep_alive", made.keep_alive), ("keep_deleted", made.keep_deleted)):
        try:
            parse_duration(duration)
        except VlmtuiError as error:
            raise bad_input(f"{source}: {name}: {error.message}", hint=error.hint) from error
    if not 0 <= made.hang_s < float("inf"):
        raise bad_input(f"{source}: hang_s: not a number of seconds.", hint="30 is usual; 0 turns it off.")
    if problem := made.sampling.over(None).problem():
        raise bad_input(f"{source}: sampling: {problem}.")
    tables = {"parameters": made.parameters, **{f"models.{name}": table for name, table in made.models.items()}}
    for table, parameters in tables.items():
        for name, value in default_parameters(parameters):
            try:
                check_default(name, value)
            except VlmtuiError as error:
                raise bad_input(f"{source}: {table}.{name}: {error.message}", hint=error.hint) from error
    check_engines(made.engines, source)
    return made


def _check_names(given: Mapping[str, object], kind: type[msgspec.Struct], source: str, where: str) -> None:
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    for name, value in given.items():
        if name not in known:
            raise bad_input(f"{source}: unknown setting {where + name!r}.", hint=_nearest(where + name))
        inner = known[name].type
        if isinstance(value, Mapping) and isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            _check_names(value, inner, source, f"{name}.")


def _nearest(name: str) -> str:
    names = list(setting_names())
    by_last = {known.rpartition(".")[2]: known for known in names}
    close = difflib.get_close_matches(name, names, n=1) or difflib.get_close_matches(name, by_last, n=1)
    if close:
        return f"Did you mean {by_last.get(close[0], close[0])!r}?"
    return f"Known: {', '.join(names)}."


def setting_names() -> Iterator[str]:
    """Yield the dotted name of every setting."""
    for field in msgspec.structs.fields(Settings):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from (f"{field.name}.{inner.name}" for inner in msgspec.structs.fields(field.type))
        else:
            yield field.name


def _nested(name: str, value: object) -> dict[str, object]:
    outer, _, inner = name.rpartition(".")
    return {outer: {inner: value}} if outer else {inner: value}


def _hint_about_keys(given: Mapping[str, object]) -> str:
    """Return a hint if a server's table contains an API key instead of the variable or file that holds the key; else an
    empty text."""
    engines = given.get("engines")
    tables = engines.values() if isinstance(engines, Mapping) else ()
    has_key = any(isinstance(table, Mapping) and table.keys() & {"api_key", "key", "token"} for table in tables)
    return "Don't write the key here: api_key_env names its variable, api_key_file its file." if has_key else ""


def _reworded(error: msgspec.ValidationError) -> str:
    """Return msgspec's message, such as "Expected `float`, got `str` - at `$.sampling.temperature`", reworded to begin
    with the field."""
    text, _, place = str(error).partition(" - at ")
    field = place.strip("`").removeprefix("$.")
    text = text.replace("`", "")
    return f"{field}: {text[:1].lower()}{text[1:]}" if field else text
