"""The models that a person can choose, and the checks before one is loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from vlmtui.config.trust import TrustStore
from vlmtui.domain.conversation import Modality
from vlmtui.domain.engine import REMOTE_BACKEND, TRANSFORMERS_BACKEND, BackendChoice, EngineStatus, LoadSpec
from vlmtui.engine.machine import Fit, Machine, check_fit, claimed_share, fit_text, gib
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, model_of, resolve, with_backend, with_engine_args, with_trust
from vlmtui.registry.remote_code import RemoteCode, remote_code_of
from vlmtui.registry.routes import choices_of, mark_of, model_closed
from vlmtui.registry.schema import Family
from vlmtui.session.exchange import Exchange
from vlmtui.text import one_line

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
    """True for the default model of its family. The record's size and context describe that one."""
    running: bool = False
    """True if an engine with this model runs on this machine."""
    current: bool = False
    """True for the model that the app has loaded."""
    downloaded: bool = False
    """True if the model's files are on this machine."""
    server: Server | None = None
    """The server that has the model; None: this machine loads it."""

    @property
    def closed(self) -> bool:
        """True if the model can't run on this machine."""
        return self.server is None and bool(mark_of(self.family, self.backend))

    @property
    def backend(self) -> BackendChoice:
        """The kind of engine that would load the model."""
        return BackendChoice.of(self.model.spec)

    @property
    def backends(self) -> tuple[BackendChoice, ...]:
        """The kinds of engines to choose from, the best first."""
        return choices_of(self.family) if self.server is None else ()

    @property
    def served(self) -> ServedModel | None:
        """The server's facts about the model; None if there are none."""
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
    """Return the sort key of a row; False comes first."""
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


class LoadOption(msgspec.Struct, frozen=True):
    """An option of a `LoadCheck`. Choosing it loads `model`; None: nothing is loaded."""

    label: str
    model: Model | None = None
    trusts_code: bool = False
    """True if this choice permits the repository's own code."""


class LoadCheck(msgspec.Struct, frozen=True):
    """A check that needs a decision. The first option is the safe one."""

    title: str
    text: str
    options: tuple[LoadOption, ...]


_BACK = LoadOption("Back")
_NAMES_SHOWN = 8


class LoadChecks:
    """Finds decisions to be made before a load. Reads a few small files."""

    def __init__(self, store: TrustStore) -> None:
        self._store = store

    def first(self, model: Model, machine: Machine | None, *, size_accepted: bool = False) -> LoadCheck | None:
        """Return the next decision; None if the model may be loaded. Without a machine, the size is not checked."""
        if model.spec.backend == REMOTE_BACKEND:
            return None  # nothing is loaded here
        if error := model_closed(model.family, model.spec):
            said = "\n\n".join(text for text in (error.message, error.detail, error.hint) if text)
            return LoadCheck("This model does not run here", said, (_BACK,))
        if not size_accepted and (check := self._too_big(model, machine)):
            return check
        return self._foreign_code(model)

    def allowed(self, model: Model) -> Model:
        """Return the model with permission to run its own code if it needs that and the user gave it before."""
        if not model.family.trust_remote_code or model.spec.trust_remote_code:
            return model
        try:
            code = remote_code_of(model.spec.model)
        except VlmtuiError:
            return model  # the dialog says why
        return with_trust(model, code) if self._store.is_trusted(code) else model

    def remember(self, model: Model) -> None:
        """Store the permission for the code at this revision. Raises VlmtuiError if the code has changed meanwhile,
        or if the permission cannot be stored."""
        code = remote_code_of(model.spec.model)
        if with_trust(model, code) != model:
            raise bad_input(f"The code of {model.spec.name} has just changed.", hint="Choose the model again.")
        self._store.trust(code)

    def _foreign_code(self, model: Model) -> LoadCheck | None:
        if not model.family.trust_remote_code or model.spec.trust_remote_code:
            return None
        try:
            code = remote_code_of(model.spec.model)
        except VlmtuiError as error:
            said = "\n\n".join(text for text in (error.message, error.detail, error.hint) if text)
            return LoadCheck("Can't run this model's own code", said, (_BACK,))
        changes = self._store.changes(code)
        changed = f"You allowed it before, but these have changed: {_names(changes)}.\n\n" if changes else ""
        text = (
            f"{changed}{code.model} comes with its own Python code ({_which(code)}), and does not load without it. It "
            "runs with all your rights on this machine. Say yes only if you have read it or trust its author.\n\n"
            "The answer is remembered for this code; when it changes, you are asked again."
        )
        yes = LoadOption("Let it run", with_trust(model, code), True)
        return LoadCheck("Let this model run its own code?", text, (_BACK, yes))

    @staticmethod
    def _too_big(model: Model, machine: Machine | None) -> LoadCheck | None:
        verdict = check_fit(model, machine)
        if machine is None or verdict.fit is Fit.UNKNOWN or (verdict.fit is not Fit.NO and not verdict.advice):
            return None
        options = [_BACK]
        if verdict.settings:
            options.append(LoadOption(f"Load with {verdict.advice}", with_engine_args(model, verdict.settings)))
        options.append(LoadOption("Load it as it is", model))
        return LoadCheck("This model probably does not fit", fit_text(verdict, machine), tuple(options))


def _which(code: RemoteCode) -> str:
    if code.files is not None:
        count = len(code.files) - 1
        which = f"{count} Python file{'' if count == 1 else 's'} of that folder"
    elif code.revision is not None:
        which = f"revision {code.revision[:12]}"
    else:
        which = "the revision that is downloaded next"
    return f"{which}, and the code of {code.repository}" if code.repository else which


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"{shown} and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else shown


class MemoryNeed(msgspec.Struct, frozen=True):
    """The memory that further engines need on this machine."""

    names: tuple[str, ...]
    """The names of the engines to load here; hostile text."""
    fits: bool
    """True if the engines probably fit beside those that are loaded."""
    text: str
    """A sentence for people: the memory that they need, and the free memory."""


def fits_beside(model: Model, machine: Machine) -> bool:
    """Return True if a model fits in the free memory while another one is loaded; False if its size is unknown.
    Reads small files: call it in a thread.

    On a GPU the engine does not start unless its whole share of the memory is free, however small the model is.
    """
    verdict = check_fit(model, machine)
    if verdict.fit not in (Fit.YES, Fit.SEVERAL) or verdict.settings:
        return False
    share = claimed_share(model)
    wanted = model.spec.engine_args.get("tensor_parallel_size", 1)
    free = [gpu for gpu in machine.gpus if gpu.free >= share * gpu.total]
    if not machine.gpus:
        return verdict.needed <= machine.ram_free
    return len(free) >= (wanted if isinstance(wanted, int) else 1)


def memory_need(models: Sequence[Model], machine: Machine) -> MemoryNeed:
    """Estimate whether models can be loaded beside what is loaded. Reads small files: call it in a thread."""
    needed = [check_fit(model, machine).needed for model in models]
    total = sum(needed)
    free = machine.ram_free if not machine.gpus else sum(gpu.free for gpu in machine.gpus)
    fits = all(fits_beside(model, machine) for model in models) and total <= free
    about = f"about {gib(total)}" if all(needed) else "an unknown amount"
    names = tuple(one_line(model.spec.name) for model in models)
    return MemoryNeed(names, fits, f"Needs {about} of memory; here: {machine.describe()}.")


def excess_media(exchanges: Iterable[Exchange], family: Family) -> str:
    """Return a sentence about images and videos that later prompts include and the family does not accept; empty if
    none."""
    if not family.takes:
        return ""
    turns = [exchange.sent_user for exchange in exchanges if exchange.is_remembered]
    counts: Counter[Modality] = Counter(item.modality for turn in turns for item in turn.attachments)
    problems = []
    for modality, count in sorted(counts.items()):
        takes = family.takes.get(modality)
        if takes is None:
            problems.append(f"{_so_many(count, modality)} so far; this model does not accept {modality}s")
        elif count > takes.max_items:
            problems.append(f"{_so_many(count, modality)} so far; the limit is {takes.max_items}")
    return " ".join(f"{problem}." for problem in problems)


def _so_many(count: int, modality: Modality) -> str:
    return f"{count} {modality}{'s' if count != 1 else ''}"
