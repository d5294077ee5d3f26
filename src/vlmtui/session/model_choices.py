"""The rows of the model picker: the registry's families, running models, and typed names. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.backend_choice import BackendChoice
from vlmtui.domain.engine import TRANSFORMERS_BACKEND, EngineStatus, LoadSpec
from vlmtui.errors import VlmtuiError
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, model_of, resolve, with_backend
from vlmtui.registry.routes import choices_of, mark_of
from vlmtui.registry.schema import Family

if TYPE_CHECKING:
    from vlmtui.engine.remote_models import Server
    from vlmtui.worker.backends.remote.probe import ServedModel

_BUNDLED = "bundled:"
_FOLDER_STARTS = ("/", "~", "./", "../")


class Choice(msgspec.Struct, frozen=True):
    """A row of the picker."""

    model: Model
    title: str
    default: bool = True
    """Whether it is its family's default model, which the record's size and context describe."""
    running: bool = False
    """Whether an engine with it runs on this machine."""
    current: bool = False
    """Whether it is the app's loaded model."""
    downloaded: bool = False
    """Whether its files are on this machine."""
    server: Server | None = None
    """The server that serves it; None: it is loaded here."""

    @property
    def closed(self) -> bool:
        """Whether it cannot run here."""
        return self.server is None and bool(mark_of(self.family, self.backend))

    @property
    def backend(self) -> BackendChoice:
        """The kind of engine that would load it."""
        return BackendChoice.of(self.model.spec)

    @property
    def backends(self) -> tuple[BackendChoice, ...]:
        """The kinds of engines to choose from, the best first."""
        return choices_of(self.family) if self.server is None else ()

    @property
    def served(self) -> ServedModel | None:
        """What the server tells of it."""
        facts = self.server.facts if self.server is not None else None
        return next((one for one in facts.models if one.id == self.model.spec.model), None) if facts else None

    @property
    def family(self) -> Family:
        return self.model.family

    @property
    def bundled(self) -> bool:
        return self.server is None and self.family.models[0].startswith(_BUNDLED)

    @property
    def parameters_b(self) -> float | None:
        """Billions of parameters."""
        return self.family.parameters_b if self.default else None

    @property
    def context(self) -> int | None:
        """Tokens of context."""
        if self.served is not None:
            return self.served.max_model_len
        return self.family.context if self.default else None

    @property
    def state(self) -> str:
        if self.current:
            return "loaded"
        if self.running:
            return "running"
        if self.server is not None:
            return "server"
        if self.closed:
            return mark_of(self.family, self.backend)
        if self.backend.pinned is not None:
            return self.backend.pinned
        if self.backend.backend == TRANSFORMERS_BACKEND:
            return "HF"
        if self.bundled:
            return "bundled"
        return "here" if self.downloaded else ""


def model_choices(
    registry: Registry,
    *,
    running: Sequence[EngineStatus] = (),
    current: LoadSpec | None = None,
    downloaded: Sequence[Model] = (),
    servers: Sequence[Server] = (),
    backends: Mapping[str, BackendChoice] | None = None,
    query: str = "",
) -> list[Choice]:
    """Return the rows for a query: those whose title contains it, then those whose repository does, then those whose
    architecture or media kinds do. Within each group: bundled, running, downloaded, then registry order; those that
    cannot run here come last. The models of servers follow those that run here, adapters below theirs.

    A family is one row. Another model of it has its own row if it runs or is downloaded, or if the query names it and
    not the default. A typed local folder or repository id is a row, too.

    `backends`: the kinds of engines that the user chose, by the name of the model.
    """
    specs = [status.spec for status in running]
    here = {model.spec.model for model in downloaded}
    rows: list[Choice] = []
    for family in registry.values():
        rows += _of_family(family, specs, current, here, query.strip().casefold())
    rows += _served(servers, specs, current, query.casefold().split())
    if not query.strip():
        rows += _unlisted(registry, specs, current, rows)
    rows += _downloaded(downloaded, specs, current, rows, query.strip().casefold())
    if query.startswith(_FOLDER_STARTS) or (query.count("/") == 1 and not rows):
        rows += _typed(registry, query.strip(), specs, current)
    if backends:
        rows = [_by_backend(row, backends, specs, current) for row in rows]
    words = query.casefold().split()
    return sorted(rows, key=lambda row: _order(row, words))


def _order(row: Choice, words: Sequence[str]) -> tuple[bool, ...]:
    """Return where a row stands; False comes first."""
    title, name = row.title.casefold(), row.model.spec.name.casefold()
    has_title, has_name = (all(word in text for word in words) for text in (title, f"{title} {name}"))
    return (
        not has_title,
        not has_name,
        not row.bundled,
        row.server is None and not (row.running or row.current),
        row.server is not None,
        not row.downloaded,
        row.closed,
    )


def _by_backend(
    row: Choice, backends: Mapping[str, BackendChoice], specs: Sequence[LoadSpec], current: LoadSpec | None
) -> Choice:
    """Return the row with the kind of engine that the user chose for it."""
    chosen = backends.get(row.model.spec.name)
    if chosen is None or row.server is not None:
        return row
    model = with_backend(row.model, chosen)
    return msgspec.structs.replace(row, model=model, running=model.spec in specs, current=model.spec == current)


def _of_family(
    family: Family, specs: Sequence[LoadSpec], current: LoadSpec | None, here: Collection[str], query: str
) -> list[Choice]:
    rows: list[Choice] = []
    about = " ".join((family.title, family.family, *family.architectures, *family.takes)).casefold()
    # Without a query, further models are listed only if they run or are downloaded: usually none.
    wants_all = bool(query or specs or current or here)
    for number, name in enumerate(family.models if wants_all else family.models[:1]):
        model = model_of(family, name)
        default = number == 0
        row = Choice(
            model,
            title=family.title if default else name,
            default=default,
            running=model.spec in specs,
            current=model.spec == current,
            downloaded=name in here,
        )
        if default:
            listed = all(word in f"{about} {name.casefold()}" for word in query.split())
        else:
            matches = all(word in f"{about} {name.casefold()}" for word in query.split())
            listed = matches and (row.running or row.current or row.downloaded or not (rows and rows[0].default))
        if listed:
            rows.append(row)
    return rows


def _served(
    servers: Sequence[Server], specs: Sequence[LoadSpec], current: LoadSpec | None, words: Sequence[str]
) -> list[Choice]:
    """Return a row for each model of each server; an adapter is indented below its model."""
    found: list[Choice] = []
    for server in servers:
        adapters = {one.id for one in server.facts.models if one.parent} if server.facts else set()
        found += [
            Choice(
                model,
                title=f"  {model.spec.name}" if model.spec.model in adapters else model.spec.name,
                default=False,
                running=model.spec in specs,
                current=model.spec == current,
                server=server,
            )
            for model in server.models
            if all(word in f"{model.spec.name} {model.family.title}".casefold() for word in words)
        ]
    return found


def _unlisted(
    registry: Registry, specs: Sequence[LoadSpec], current: LoadSpec | None, rows: Sequence[Choice]
) -> list[Choice]:
    """Yield running engines of local folders and the like, if their family is known."""
    listed = [row.model.spec for row in rows]
    return [
        Choice(Model(registry[spec.family], spec), spec.name, default=False, running=True, current=spec == current)
        for spec in specs
        if spec not in listed and spec.family is not None and spec.family in registry
    ]


def _downloaded(
    models: Sequence[Model],
    specs: Sequence[LoadSpec],
    current: LoadSpec | None,
    rows: Sequence[Choice],
    query: str,
) -> list[Choice]:
    """Return downloaded repositories that no record lists."""
    listed = {row.model.spec.model for row in rows}
    return [
        Choice(
            model,
            model.spec.name,
            default=False,
            running=model.spec in specs,
            current=model.spec == current,
            downloaded=True,
        )
        for model in models
        if model.spec.model not in listed and all(word in model.spec.name.casefold() for word in query.split())
    ]


def _typed(registry: Registry, name: str, specs: Sequence[LoadSpec], current: LoadSpec | None) -> list[Choice]:
    try:
        model = resolve(registry, name)
    except (VlmtuiError, RuntimeError):
        return []
    spec = model.spec
    return [Choice(model, spec.name, default=False, running=spec in specs, current=spec == current)]
