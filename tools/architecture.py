"""Check the structure of the source: `python tools/architecture.py [--list]`.

Prints a table of the rooms (packages) with their files, lines, and number of modules that only one module imports; and
how often each rule is broken that no other tool checks. `--list` names the places. `tests/unit/test_architecture.py`
has the allowed numbers, with reasons.

Reads only source text: imports nothing, and needs only the standard library. Each function documents the rules by which
it guesses types.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

COPY_NODES_MIN = 40
"""Two functions with the same body count as copies from this many syntax nodes on."""

PUBLIC_PRIVATES = frozenset({"_replace", "_asdict", "_fields", "_make"})
"""Public names of a NamedTuple that begin with an underscore to avoid clashes with fields."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Part:
    """A function or method: its qualified name, and its syntax nodes without nested functions and classes."""

    name: str
    node: Function
    nodes: list[ast.AST]


@dataclass
class Module:
    """A source file. `name` is dotted, `path` is relative to the package's parent folder."""

    name: str
    path: str
    lines: int
    tree: ast.Module
    is_package: bool = False
    nodes: list[ast.AST] = field(default_factory=list)
    functions: list[Part] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._collect(self.tree, "", None)

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]

    def _collect(self, parent: ast.AST, prefix: str, within: Part | None) -> None:
        for node in ast.iter_child_nodes(parent):
            self.nodes.append(node)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.append(Part(prefix + node.name, node, []))
                self._collect(node, f"{prefix}{node.name}.", self.functions[-1])
            elif isinstance(node, ast.ClassDef):
                self._collect(node, f"{prefix}{node.name}.", None)
            else:
                if within is not None:
                    within.nodes.append(node)
                self._collect(node, prefix, within)


@dataclass(frozen=True, order=True)
class Place:
    """A finding and its place."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


@dataclass
class House:
    """The modules of one package, and an index of its classes."""

    package: str
    modules: list[Module]
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    """By dotted name."""
    bases: dict[str, list[str]] = field(default_factory=dict)
    """Dotted names of a class's bases, those of other packages included."""

    @classmethod
    def read(cls, source: Path, package: str = "vlmtui") -> House:
        """Read the package in `source/package`, data files included (`bundled`, the worker's start-up hooks)."""
        modules = []
        for path in sorted((source / package).rglob("*.py")):
            relative = path.relative_to(source)
            parts = relative.with_suffix("").parts
            is_package = parts[-1] == "__init__"
            text = path.read_text(encoding="utf-8")
            name = ".".join(parts[:-1] if is_package else parts)
            modules.append(Module(name, relative.as_posix(), text.count("\n"), ast.parse(text), is_package))
        house = cls(package, modules)
        for module in modules:
            house._add_classes(module)
        return house

    def ancestors(self, name: str) -> list[str]:
        """Return the class and its bases in this package."""
        found = [name]
        for base in self.bases.get(name, ()):
            if base in self.classes and base != name:
                found += [one for one in self.ancestors(base) if one not in found]
        return found

    def _add_classes(self, module: Module) -> None:
        known = _names(module)
        for node in module.classes:
            self.classes[f"{module.name}.{node.name}"] = node
            self.bases[f"{module.name}.{node.name}"] = [
                known.get(base.partition(".")[0], base) + ("." + base.partition(".")[2] if "." in base else "")
                for base in map(_dotted, node.bases)
                if base
            ]


def bindings_outside(house: House, table: str = "vlmtui.ui.actions") -> list[Place]:
    """Return `Binding(…)` calls, and tuples in a class's BINDINGS, outside of the action table."""
    found = []
    for module in house.modules:
        if module.name == table or module.name.startswith(table + "."):
            continue
        for node in module.nodes:
            if isinstance(node, ast.Call) and _dotted(node.func).rpartition(".")[2] == "Binding":
                found.append(Place(module.path, node.lineno, "Binding(…)"))
            elif isinstance(node, ast.Assign | ast.AnnAssign) and "BINDINGS" in map(_dotted, _targets(node)):
                tuples = [one for one in getattr(node.value, "elts", ()) if isinstance(one, ast.Tuple)]
                found += [Place(module.path, one.lineno, "a binding as a tuple") for one in tuples]
    return found


STARTS = frozenset(
    {f"subprocess.{name}" for name in ("Popen", "call", "check_call", "check_output", "run")}
    | {f"subprocess.{name}" for name in ("getoutput", "getstatusoutput")}
    | {"asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell", "os.popen", "os.system", "pty.spawn"}
    | {"concurrent.futures.ProcessPoolExecutor", "multiprocessing.Pool", "multiprocessing.Process", "psutil.Popen"}
)
"""Functions and classes that start a process; so do names that begin with `os.exec`, `os.posix_spawn` or `os.spawn`."""
SAFE_COMMANDS = frozenset({"python_command", "isolated_command"})
"""Functions of `vlmtui.processes` that return commands without the current folder on Python's search path."""


def process_starts(house: House) -> list[Place]:
    """Return functions that start a process with a command that is not from `SAFE_COMMANDS`."""
    found = []
    for module in house.modules:
        known = _names(module)
        for part in module.functions:
            called = {_dotted(node.func): node.lineno for node in part.nodes if isinstance(node, ast.Call)}
            starts = [name for name in called if _starts_process(name, known)]
            if starts and not SAFE_COMMANDS & called.keys():
                found += [Place(module.path, called[name], f"{name} in {part.name}") for name in starts]
    return found


def open_commands(house: House) -> list[Place]:
    """Return lists with `-m` or `-c` after an interpreter, but without the option that leaves out the current
    folder."""
    found = []
    for module in house.modules:
        for node in module.nodes:
            if isinstance(node, ast.List | ast.Tuple):
                words = [one.value if isinstance(one, ast.Constant) else None for one in node.elts]
                places = [place for place, word in enumerate(words) if word in ("-m", "-c") and place]
                if any(words[place - 1] is None for place in places):
                    found.append(Place(module.path, node.lineno, ast.unparse(node)))
    return found


def _starts_process(name: str, known: dict[str, str]) -> bool:
    first, _, rest = name.partition(".")
    origin = known.get(first, first) + (f".{rest}" if rest else "")
    return origin in STARTS or origin.startswith(("os.exec", "os.posix_spawn", "os.spawn"))


def sleeps(house: House) -> list[Place]:
    """Return calls of `asyncio.sleep` and `time.sleep`, and timers that repeat for ever (`set_interval`), with their
    functions. `sleep(0)`, which only yields to others, is reported as "yield in …"."""
    found = []
    for module in house.modules:
        for part in module.functions:
            for node in part.nodes:
                if not isinstance(node, ast.Call):
                    continue
                called = _dotted(node.func)
                if called in ("asyncio.sleep", "time.sleep", "sleep") or called.endswith(".set_interval"):
                    is_yield = ast.unparse(node).endswith("sleep(0)")
                    what = "yield" if is_yield else called.rpartition(".")[2]
                    found.append(Place(module.path, node.lineno, f"{what} in {part.name}"))
    return sorted(found)


def unguarded_questions(house: House) -> list[Place]:
    """Return calls of `Path.exists`, `is_file` and `is_dir` outside of a `try` or `suppress`. They raise OSError for a
    folder without permission and a name that is too long; `vlmtui.reading.is_file` and `is_folder` do not."""
    found = []
    for module in house.modules:
        guarded = {
            id(inner)
            for outer in ast.walk(module.tree)
            if isinstance(outer, ast.Try) or (isinstance(outer, ast.With) and "suppress" in ast.unparse(outer.items[0]))
            for inner in ast.walk(outer)
        }
        for part in module.functions:
            for node in part.nodes:
                if isinstance(node, ast.Call) and not node.args and id(node) not in guarded:
                    called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
                    if called in ("exists", "is_file", "is_dir"):
                        found.append(Place(module.path, node.lineno, f"{called} in {part.name}"))
    return sorted(found)


def broad_excepts(house: House) -> list[Place]:
    """Return `except Exception`, `except BaseException` and bare `except`, with their functions."""
    found = []
    for module in house.modules:
        for part in module.functions:
            for node in part.nodes:
                if not isinstance(node, ast.ExceptHandler):
                    continue
                kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
                caught = [_dotted(kind) if kind is not None else "everything" for kind in kinds]
                if {"Exception", "BaseException", "everything"} & set(caught):
                    found.append(Place(module.path, node.lineno, f"except {', '.join(caught)} in {part.name}"))
    return sorted(found)


def misplaced_docstrings(house: House) -> list[Place]:
    """Return text statements in modules, classes and functions that are neither a docstring nor directly below the
    single attribute that they describe."""
    found = []
    for module in house.modules:
        for owner in [module.tree, *module.classes, *(part.node for part in module.functions)]:
            has_docstring = ast.get_docstring(owner, clean=False) is not None
            for before, node in zip([None, *owner.body], owner.body, strict=False):
                if _is_text(node) and not (before is None and has_docstring) and not _describes(node, before):
                    found.append(Place(module.path, node.lineno, ast.unparse(node)[:60]))
    return sorted(found)


def foreign_privates(house: House) -> list[Place]:
    """Return private names of other packages: imported modules and names, attributes that are read or set, overridden
    methods.

    An attribute belongs to another package if none of our classes and modules defines its name; an attribute of `self`,
    if none of our bases of the class does. A private method is an override if its class has a base in another package
    and our code does not use the name: then only that base calls it.
    """
    defined = {name for module in house.modules for name in _private_definitions(module.tree)}
    reads = [node for module in house.modules for node in module.nodes if isinstance(node, ast.Attribute)]
    used = {node.attr for node in reads if _dotted(node.value) != "super"}
    found = []
    for module in house.modules:
        own_of: dict[ast.AST, set[str]] = {}
        for owner in module.classes:
            name = next((one for one, node in house.classes.items() if node is owner), "")
            chain = [house.classes[one] for one in house.ancestors(name)] if name else [owner]
            own = {private for one in chain for private in _private_definitions(one)}
            own_of |= dict.fromkeys(ast.walk(owner), own)
            is_foreign = any(base not in house.classes for one in house.ancestors(name) for base in house.bases[one])
            for method in owner.body:
                if (
                    is_foreign
                    and isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
                    and _is_private(method.name)
                    and method.name not in used
                    and not method.decorator_list
                ):
                    found.append(Place(module.path, method.lineno, f"override {owner.name}.{method.name}"))
        for node in module.nodes:
            if isinstance(node, ast.Attribute) and _is_private(node.attr):
                is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                if node.attr not in (own_of.get(node, defined) if is_own else defined):
                    found.append(Place(module.path, node.lineno, f"access {ast.unparse(node)}"))
            for origin in _imported(node):
                if not origin.startswith(house.package) and any(map(_is_private, origin.split("."))):
                    found.append(Place(module.path, getattr(node, "lineno", 1), f"import {origin}"))
    return sorted(found)


def private_name(place: Place) -> str:
    """Return the private name in a finding of `foreign_privates`; for an import, the module's."""
    parts = [part for part in place.what.partition(" ")[2].split(".") if _is_private(part)]
    return parts[0] if place.what.startswith("import ") else parts[-1]


def copies(house: House) -> list[list[Place]]:
    """Return functions with the same body, apart from the names of variables."""
    alike: dict[tuple[type, ...], list[tuple[Place, list[ast.stmt]]]] = defaultdict(list)
    for module in house.modules:
        for part in module.functions:
            body = part.node.body[1:] if ast.get_docstring(part.node) is not None else part.node.body
            if len(part.nodes) >= COPY_NODES_MIN:
                kinds = tuple(type(node) for statement in body for node in ast.walk(statement))
                alike[kinds].append((Place(module.path, part.node.lineno, part.name), body))
    groups: dict[str, list[Place]] = defaultdict(list)
    for found in alike.values():
        for place, body in found if len(found) > 1 else ():
            groups[_shape(body)].append(place)
    return [group for group in groups.values() if len(group) > 1]


def imports(house: House) -> dict[str, set[str]]:
    """Return for each module the modules that import it or a part of it, inside functions too."""
    known = {module.name for module in house.modules}
    importers: dict[str, set[str]] = {name: set() for name in known}
    for module in house.modules:
        for node in module.nodes:
            for origin in _imported(node):
                name = origin if origin in known else origin.rpartition(".")[0]
                if name in known and name != module.name:
                    importers[name].add(module.name)
    return importers


def slices(house: House) -> list[str]:
    """Return modules that only one module imports, in the same folder. A module should be a concept that a newcomer
    looks for by name; these may be parts of their importers."""
    packages = {module.name for module in house.modules if module.is_package}
    return sorted(
        name
        for name, users in imports(house).items()
        if name not in packages and [user.rpartition(".")[0] for user in users] == [name.rpartition(".")[0]]
    )


def uncovered(house: House, pyproject: Path) -> list[str]:
    """Return modules that no layer contract names, among those directly below the package and directly below `ui`,
    whose packages have their own contract."""
    settings = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    contracts = settings.get("tool", {}).get("importlinter", {}).get("contracts", [])
    named = {
        f"{container}.{part.strip(' ()')}".strip(".")
        for contract in contracts
        if contract["type"] == "layers"
        for container in contract.get("containers", [""])
        for layer in contract["layers"]
        for part in layer.replace("|", ":").split(":")
    }
    rooms = {house.package, f"{house.package}.ui"}
    return sorted(
        module.name
        for module in house.modules
        if module.name.rpartition(".")[0] in rooms
        and not module.name.endswith("__main__")
        and not any(one == module.name or one.startswith(module.name + ".") for one in named)
    )


def _names(module: Module) -> dict[str, str]:
    """Return what a module's names refer to: its own classes and its imports."""
    package = module.name if module.is_package else module.name.rpartition(".")[0]
    known: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom):
            origin = package.rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(filter(None, (origin, node.module)))
            known |= {alias.asname or alias.name: f"{source}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            known |= {alias.asname: alias.name for alias in node.names if alias.asname}
    return known | {node.name: f"{module.name}.{node.name}" for node in module.classes}


def _dotted(node: ast.AST | None) -> str:
    """Return `a.b` for a name, an attribute, a subscript (`a.b[c]`) or a call; "" for any other node."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            inner = _dotted(node.value)
            return f"{inner}.{node.attr}" if inner else node.attr
        case ast.Subscript():
            return _dotted(node.value)
        case ast.Call():
            return _dotted(node.func)
        case _:
            return ""


def _targets(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Assign():
            found = node.targets
        case ast.AnnAssign() | ast.AugAssign():
            found = [node.target]
        case _:
            return []
    return [one for target in found for one in (target.elts if isinstance(target, ast.Tuple) else [target])]


def _is_text(node: ast.stmt) -> bool:
    """Return True if a statement is only a text."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _describes(text: ast.stmt, before: ast.stmt | None) -> bool:
    """Return True if a text is directly below a statement that sets a single attribute."""
    targets = _targets(before) if before is not None else []
    return before is not None and len(targets) == 1 and text.lineno == (before.end_lineno or 0) + 1


def _is_private(name: str) -> bool:
    """Return True if a name begins with one underscore. Names of protocols, which also end with one, don't count."""
    return name.startswith("_") and not name.endswith("_") and name not in PUBLIC_PRIVATES


def _private_definitions(tree: ast.AST) -> set[str]:
    """Return private names defined in a class or module: functions, classes, names, and attributes of `self`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                found.add(name)
            case _:
                pass
    return {name for name in found if _is_private(name)}


def _imported(node: ast.AST) -> list[str]:
    """Return the dotted names that a statement imports."""
    match node:
        case ast.ImportFrom(module=str(module), level=0):
            return [f"{module}.{alias.name}" for alias in node.names]
        case ast.Import():
            return [alias.name for alias in node.names]
        case _:
            return []


class _Renamed(ast.NodeTransformer):
    """Replaces names by numbers in order of appearance, so that copies with other names compare equal."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        number = self.numbers.setdefault(node.id, len(self.numbers))
        return ast.Name(f"name{number}", node.ctx)


def _shape(body: Sequence[ast.stmt]) -> str:
    renamed = _Renamed()
    copied = ast.parse("\n".join(ast.unparse(statement) for statement in body))
    return ast.dump(renamed.visit(copied))


def measure(house: House, pyproject: Path) -> dict[str, list[str]]:
    """Return the findings of each rule, one line each."""
    waits = [place for place in sleeps(house) if not place.what.startswith("yield")]
    rules: dict[str, Iterable[object]] = {
        "modules that only a sibling imports": slices(house),
        "modules in no import contract": uncovered(house, pyproject),
        "`Binding(` outside the action table": bindings_outside(house),
        "sleeps, and timers that repeat": waits,
        "broad excepts": broad_excepts(house),
        "misplaced attribute docstrings": misplaced_docstrings(house),
        "private names of other packages": foreign_privates(house),
        "functions that are copies of another": [" = ".join(map(str, group)) for group in copies(house)],
    }
    return {rule: [str(one) for one in found] for rule, found in rules.items()}


def rooms(house: House) -> list[tuple[str, int, int, int]]:
    """Return for each room (a package, and each package of `ui` and `worker`) its files, its lines, and the number of
    its modules that only one module imports."""
    importers = imports(house)
    found: dict[str, list[Module]] = defaultdict(list)
    for module in house.modules:
        parts = (module.name if module.is_package else module.name.rpartition(".")[0]).split(".")[1:]
        found[".".join(parts[: 2 if parts[:1] in (["ui"], ["worker"]) else 1]) or "(top)"].append(module)
    return [
        (room, len(modules), sum(one.lines for one in modules), sum(len(importers[one.name]) == 1 for one in modules))
        for room, modules in sorted(found.items())
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check how the source is built.")
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--list", action="store_true", help="name every place")
    options = parser.parse_args(arguments)
    if not (options.checkout / "src" / "vlmtui").is_dir():
        print(f"{options.checkout} has no src/vlmtui: name a checkout of vlmtui.", file=sys.stderr)
        return 2
    house = House.read(options.checkout / "src")
    table = rooms(house)
    print("| room | files | lines | imported by one |\n| --- | ---: | ---: | ---: |")
    for room, *counts in [*table, ("all", *(sum(column) for column in zip(*(row[1:] for row in table), strict=True)))]:
        print(f"| {room} | {' | '.join(f'{count:,}' for count in counts)} |")
    found = measure(house, options.checkout / "pyproject.toml")
    print("\n| rule | places |\n| --- | ---: |")
    for rule, places in found.items():
        print(f"| {rule} | {len(places)} |")
    if options.list:
        for rule, places in found.items():
            print(f"\n## {rule} ({len(places)})", *places, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
