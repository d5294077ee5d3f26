"""The models that a user can choose, and the checks before a load: code permission, memory, accepted media."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from vlmtui.config.trust import TrustStore
from vlmtui.domain.conversation import Modality
from vlmtui.domain.engine import (
    REMOTE_BACKEND,
    TRANSFORMERS_BACKEND,
    BackendChoice,
    EngineStatus,
    LoadSpec,
    can_serve,
    distinction,
)
from vlmtui.engine.machine import (
    Fit,
    FitResult,
    Machine,
    check_fit,
    claimed_share,
    estimate,
    fit_text,
    gib,
    parameters_b,
)
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.registry.hub_cache import model_folder
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, family_of_spec, model_of, resolve, with_backend, with_engine_args, with_trust
from vlmtui.registry.remote_code import RemoteCode, remote_code_of
from vlmtui.registry.routes import choices_of, mark_of, model_closed
from vlmtui.registry.schema import Family
from vlmtui.text import counted, one_line

if TYPE_CHECKING:
    from vlmtui.domain.template import TemplateVariables
    from vlmtui.engine.interface import ModelReader
    from vlmtui.engine.remote_models import Server
    from vlmtui.session.exchange import Exchange
    from vlmtui.worker.backends.remote.probe import ServedModel


_BUNDLED = "bundled:"
_FOLDER_STARTS = ("/", "~", "./", "../")


class ModelSize(msgspec.Struct, frozen=True):
    """The memory and the disk space that a model needs."""

    fit: FitResult
    weights: int
    """Bytes of its weights; 0: unknown."""
    on_disk: bool
    """True if the weights are on this machine; False: `weights` is an estimate of what is downloaded."""

    @property
    def text(self) -> str:
        """The size on disk (`7.1 GB`) or to download (`↓14 GB`); empty if unknown."""
        gigabytes = self.weights / 1e9
        size = (
            f"{gigabytes / 1000:.1f} TB" if gigabytes >= 999.5 else f"{gigabytes:.{0 if gigabytes >= 9.95 else 1}f} GB"
        )
        return f"{'' if self.on_disk else '↓'}{size}" if self.weights else ""


def size_of(model: Model, machine: Machine | None) -> ModelSize:
    """Return a model's size, and whether it fits the machine. Blocking."""
    found = estimate(model)
    return ModelSize(check_fit(model, machine), found.weights if found else 0, found is not None and found.measured)


class Choice(msgspec.Struct, frozen=True):
    """A row of the list of models."""

    model: Model
    title: str
    default: bool = True
    """True for the default model of its family, which the record's size and context belong to."""
    running: bool = False
    """True if an engine that can serve this model runs on this machine."""
    current: bool = False
    """True for the model that the app has loaded."""
    downloaded: bool = False
    """True if the model's files are on this machine."""
    server: Server | None = None
    """The server that has the model; None: this machine loads it."""
    size: ModelSize | None = None
    """None: not known yet."""

    @property
    def is_too_big(self) -> bool:
        """True if the model is too big for this machine, and nothing of it is here."""
        is_here = self.running or self.current or self.downloaded or self.bundled or self.server is not None
        return not is_here and self.size is not None and self.size.fit.fit is Fit.NO and not self.size.fit.settings

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
        return parameters_b(self.model)

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
        if self.downloaded:
            return self.size.text if self.size is not None and self.size.on_disk else "on disk"
        if self.backend.pinned is not None:
            return self.backend.pinned
        if self.backend.backend == TRANSFORMERS_BACKEND:
            return "HF"
        if self.bundled:
            return "bundled"
        return self.size.text if self.size is not None else ""


def model_choices(
    registry: Registry,
    *,
    running: Sequence[EngineStatus] = (),
    current: LoadSpec | None = None,
    downloaded: Sequence[Model] = (),
    servers: Sequence[Server] = (),
    backends: Mapping[str, BackendChoice] | None = None,
    sizes: Mapping[str, ModelSize] | None = None,
    query: str = "",
) -> list[Choice]:
    """Return the rows of the list of models that match a query, sorted: rows whose title matches, then those whose
    repository matches, then those whose architecture or modality matches. Within these: running, bundled, served and
    downloaded models, others that fit, those that are too big; a model that can't run here comes after its equals.

    A family has one row, for its default model. Another model of the family has its own row if it is running or
    downloaded, or if the query matches it and not the default model. A query that is a local folder or a repository id
    also has a row. backends, sizes: by model name, the kind of engine that the user chose, and the known sizes."""
    rows = _Rows(
        registry,
        {model.spec.model for model in downloaded},
        [status.spec for status in running],
        current,
        query,
        sizes or {},
    )
    for family in registry.values():
        rows.add_family(family)
    rows.add_served(servers)
    if not query.strip():
        rows.add_unlisted()
    rows.add_downloaded(downloaded)
    if query.startswith(_FOLDER_STARTS) or (query.count("/") == 1 and not rows.found):
        rows.add_typed()
    return sorted((rows.by_backend(row, backends or {}) for row in rows.found), key=rows.order)


class _Rows:
    def __init__(
        self,
        registry: Registry,
        here: Collection[str],
        specs: Sequence[LoadSpec],
        current: LoadSpec | None,
        query: str,
        sizes: Mapping[str, ModelSize],
    ) -> None:
        self.found: list[Choice] = []
        self._registry = registry
        self._here = here
        self._specs = specs
        self._current = current
        self._sizes = sizes
        self._query = query.strip()
        self._words = query.casefold().split()

    def add_family(self, family: Family) -> None:
        """Add the family's default model, and its other models that are running, downloaded, or matched by the
        query."""
        about = " ".join((family.title, family.family, *family.architectures, *family.takes)).casefold()
        has_default = False
        # Without a query, further models are listed only if they run or are downloaded: usually none.
        wants_all = bool(self._words or self._specs or self._current or self._here)
        for number, name in enumerate(family.models if wants_all else family.models[:1]):
            if not self._matches(f"{about} {name.casefold()}"):
                continue
            row = self._row(model_of(family, name), family.title if number == 0 else name, default=number == 0)
            if row.default or row.running or row.current or row.downloaded or not has_default:
                self.found.append(row)
                has_default = has_default or row.default

    def add_served(self, servers: Sequence[Server]) -> None:
        """Add each model of each server; an adapter is indented below its model."""
        for server in servers:
            adapters = {one.id for one in server.facts.models if one.parent} if server.facts else set()
            for model in server.models:
                name = model.spec.name
                if self._matches(f"{name} {model.family.title}".casefold()):
                    title = f"  {name}" if model.spec.model in adapters else name
                    self.found.append(self._row(model, title, server=server))

    def add_unlisted(self) -> None:
        """Add running engines of unlisted models, such as local folders and models of servers."""
        listed = [row.model.spec for row in self.found]
        for spec in self._specs:
            if not any(can_serve(spec, one) for one in listed):
                family = family_of_spec(self._registry, spec)
                told = distinction(spec, [*listed, *self._specs])
                is_default = spec.backend != REMOTE_BACKEND and model_of(family).spec.model == spec.model
                title = family.title if is_default else spec.name
                row = self._row(Model(family, spec), f"{title} ({told})" if told else title, default=is_default)
                self.found.append(row)

    def add_downloaded(self, models: Sequence[Model]) -> None:
        """Add downloaded repositories that no record lists."""
        listed = {row.model.spec.model for row in self.found}
        for model in models:
            if model.spec.model not in listed and self._matches(model.spec.name.casefold()):
                self.found.append(self._row(model))

    def add_typed(self) -> None:
        """Add the local folder or repository that the query names, if it exists."""
        with suppress(VlmtuiError, RuntimeError):
            self.found.append(self._row(resolve(self._registry, self._query)))

    def by_backend(self, row: Choice, backends: Mapping[str, BackendChoice]) -> Choice:
        """Return the row; if the user chose a kind of engine for its model, the row has that kind."""
        chosen = backends.get(row.model.spec.name)
        if chosen is None or row.server is not None:
            return row
        model = with_backend(row.model, chosen)
        return msgspec.structs.replace(
            row, model=model, running=self._is_running(model), current=self._is_current(model)
        )

    def order(self, row: Choice) -> tuple[bool, ...]:
        """Return the sort key of a row; False sorts before True."""
        title, name = row.title.casefold(), row.model.spec.name.casefold()
        return (
            not self._matches(title),
            not self._matches(f"{title} {name}"),
            not (row.running or row.current),
            not row.bundled,
            row.server is None,
            not row.downloaded,
            row.is_too_big,
            row.closed,
        )

    def _matches(self, text: str) -> bool:
        return all(word in text for word in self._words)

    def _is_running(self, model: Model) -> bool:
        return any(can_serve(spec, model.spec) for spec in self._specs)

    def _is_current(self, model: Model) -> bool:
        return self._current is not None and can_serve(self._current, model.spec)

    def _row(self, model: Model, title: str = "", *, default: bool = False, server: Server | None = None) -> Choice:
        return Choice(
            model,
            title or model.spec.name,
            default=default,
            running=self._is_running(model),
            current=self._is_current(model),
            downloaded=server is None and model.spec.model in self._here,
            server=server,
            size=self._sizes.get(model.spec.name) if server is None else None,
        )


def template_variables(reader: ModelReader, model: Model) -> TemplateVariables | None:
    """Return the variables that the chat template in a model's folder reads. None if the files are not on this machine,
    or have no template that can be read. Blocking: starts a process."""
    from vlmtui.domain.model_reading import ReadRequest

    folder = model_folder(model.spec.model)
    if folder is None:
        return None
    try:
        templates = reader.read(ReadRequest(folder=str(folder), tokenizer=False)).templates
    except (VlmtuiError, OSError):  # OSError: no room for the process's files
        return None
    return templates[0].variables if templates else None


class LoadOption(msgspec.Struct, frozen=True):
    """An answer to a `LoadCheck`: load `model`; None: load nothing."""

    label: str
    model: Model | None = None
    trusts_code: bool = False
    """True if it permits the repository's own code."""


class LoadCheck(msgspec.Struct, frozen=True):
    """A question to the user before a load. The first option is the safe one."""

    title: str
    text: str
    options: tuple[LoadOption, ...]


_BACK = LoadOption("Back")
_NAMES_SHOWN = 8


class LoadChecks:
    """Finds the questions to ask before a load. Reads small files."""

    def __init__(self, store: TrustStore) -> None:
        self._store = store

    def first(self, model: Model, machine: Machine | None, *, size_accepted: bool = False) -> LoadCheck | None:
        """Return the next question; None if the model may be loaded. `machine` None: the model's size is not checked.
        `size_accepted`: the user has accepted the size."""
        if model.spec.backend == REMOTE_BACKEND:
            return None  # nothing is loaded here
        if error := model_closed(model.family, model.spec):
            said = "\n\n".join(text for text in (error.message, error.detail, error.hint) if text)
            damaged = error.kind is ErrorKind.WEIGHTS_MISSING
            title = "Files of this model are damaged" if damaged else "This model does not run here"
            return LoadCheck(title, said, (_BACK,))
        if not size_accepted and (check := self._too_big(model, machine)):
            return check
        return self._foreign_code(model)

    def allowed(self, model: Model) -> Model:
        """Return the model with permission to run its own code if the user gave it before."""
        if not model.family.trust_remote_code or model.spec.trust_remote_code:
            return model
        try:
            code = remote_code_of(model.spec.model)
        except VlmtuiError:
            return model  # `first` reports why
        return with_trust(model, code) if self._store.is_trusted(code) else model

    def remember(self, model: Model) -> None:
        """Store the user's permission to run the model's own code at this revision. Raises VlmtuiError, also if the
        code has just changed."""
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
        which = f"{counted(len(code.files) - 1, 'Python file')} of that folder"
    elif code.revision is not None:
        which = f"revision {code.revision[:12]}"
    else:
        which = "the revision that is downloaded next"
    return f"{which}, and the code of {code.repository}" if code.repository else which


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"{shown} and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else shown


class MemoryNeed(msgspec.Struct, frozen=True):
    """The memory that is needed to load engines on this machine."""

    names: tuple[str, ...]
    """The names of the models. Hostile text."""
    fits: bool
    """True if they probably fit in addition to the loaded engines."""
    text: str
    """The memory that they need and the free memory, as a sentence."""


def fits_beside(model: Model, machine: Machine) -> bool:
    """Return True if a model fits in the free memory; False if its size is unknown. Blocking. On a GPU, vLLM needs its
    whole share of the memory to be free, however small the model is."""
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
    """Estimate the memory for loading these models in addition to the loaded ones. Blocking."""
    needed = [check_fit(model, machine).needed for model in models]
    total = sum(needed)
    free = machine.ram_free if not machine.gpus else sum(gpu.free for gpu in machine.gpus)
    fits = all(fits_beside(model, machine) for model in models) and total <= free
    about = f"about {gib(total)}" if all(needed) else "an unknown amount"
    names = tuple(one_line(model.spec.name) for model in models)
    return MemoryNeed(names, fits, f"Needs {about} of memory; here: {machine.describe()}.")


def excess_media(exchanges: Iterable[Exchange], family: Family) -> str:
    """Return a sentence about attachments in later prompts that the family does not accept; empty if there are none."""
    if not family.takes:
        return ""
    turns = [exchange.sent_user for exchange in exchanges if exchange.is_remembered]
    counts: Counter[Modality] = Counter(item.modality for turn in turns for item in turn.attachments)
    problems = []
    for modality, count in sorted(counts.items()):
        takes = family.takes.get(modality)
        if takes is None:
            problems.append(f"{counted(count, modality)} so far; this model does not accept {modality}s")
        elif count > takes.max_items:
            problems.append(f"{counted(count, modality)} so far; the limit is {takes.max_items}")
    return " ".join(f"{problem}." for problem in problems)
