"""Read a chat template without running it: its variables, its texts, and whether it loops over a message's parts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import meta, nodes
from jinja2.defaults import DEFAULT_NAMESPACE
from jinja2.sandbox import ImmutableSandboxedEnvironment

from vlmtui.domain.sampling import Sampling
from vlmtui.domain.template import RENDERER_VARIABLES, TEMPLATE, Scalar, check_variables

_SOURCE_MAX = 200_000
"""The longest template that is read, in characters. Published templates have at most 40,000."""
_VALUES_MAX = 20
_EQUAL = ("eq", "ne", "in", "notin", "lt", "lteq", "gt", "gteq")


class Generation(jinja2.ext.Extension):
    """Parses `{% generation %}` blocks, which mark answers for training."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _Reading(ImmutableSandboxedEnvironment):
    """Parses templates, but computes no constant expression of them, which may take for ever."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)
    intercepted_unops = frozenset(ImmutableSandboxedEnvironment.default_unop_table)

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation])
        self.filters = dict.fromkeys(self.filters, _never_computed)
        self.tests = dict.fromkeys(self.tests, _never_computed)


@jinja2.pass_context
def _never_computed(context: object, *_: object) -> None:
    """Stand for a filter or test. Jinja computes none that takes the context before a template runs."""


def template_variables(sampling: Sampling, source: str) -> dict[str, object]:
    """Return the variables that a request sets for its chat template. `source`: the template's Jinja source; empty if
    unknown, so that the variables are not checked against it.

    Raises VlmtuiError(BAD_INPUT) for a variable that the template does not read, or a value of a wrong type.
    """
    found = sampling.extra.get(TEMPLATE)
    given = {str(name): value for name, value in found.items()} if isinstance(found, dict) else {}
    if given:
        check_variables(given, read_variables(source) if source else None)
    return given


@lru_cache(maxsize=8)
def read_variables(source: str) -> dict[str, tuple[Scalar, ...]] | None:
    """Return the variables that a template reads, without those that the renderer sets. Each comes with the values that
    the template compares it with; a bare condition (`{% if x %}`) counts as true and false.

    None if the template is too long or does not parse.
    """
    if (tree := _parsed(source)) is None:
        return None
    try:
        names = meta.find_undeclared_variables(tree) & set(_read_before_set(tree, set()))
        names -= {*RENDERER_VARIABLES, *DEFAULT_NAMESPACE}
        found = _Values({name for name in names if not name.endswith("_token")})
        found.visit(tree)
    except (jinja2.TemplateError, RecursionError):
        return None
    return {name: found.of(name) for name in sorted(found.names)}


def _parsed(source: str) -> nodes.Template | None:
    """Return a template's syntax tree; None if the template is too long or does not parse."""
    if len(source) > _SOURCE_MAX:
        return None
    environment = _Reading()
    try:
        return environment.parse(source)
    except (jinja2.TemplateError, RecursionError, ValueError):  # ValueError: a number with thousands of digits
        return None


@lru_cache(maxsize=8)
def reads_parts(source: str) -> bool:
    """Return True if a template loops over the parts of a message's content; others get strings. Decides as vLLM 0.32
    does (`_detect_content_format` in `vllm/renderers/hf.py`)."""
    tree = _parsed(source)
    if tree is None:
        return False
    loops = list(tree.find_all(nodes.For))
    lists = _aliases(tree, "messages")
    messages = {_name(loop.target) for loop in loops if any(_is_of(loop.iter, name) for name in lists)}
    if "" in lists | messages:  # vLLM fails to read such a template, and passes strings
        return False

    def is_content(node: nodes.Node) -> bool:
        return any(_is_of(node, name, "content") for name in messages)

    in_macros: set[int] = set()
    for macro in tree.find_all(nodes.Macro):
        own = list(macro.find_all(nodes.For))
        in_macros.update(map(id, own))
        given = {
            name
            for call in tree.find_all(nodes.Call)
            if _name(call.node) == macro.name
            for name, value in [
                *zip((_name(one) for one in macro.args), call.args, strict=False),
                *((one.key, one.value) for one in call.kwargs),
            ]
            if is_content(value)
        }
        if any(_name(loop.iter) in given for loop in own):
            return True
    for loop in loops:
        if is_content(loop.iter) or (_name(loop.iter) == "content" and id(loop) not in in_macros):
            return _name(loop.target) != ""
    return False


def written_texts(source: str) -> tuple[str, ...]:
    """Return the texts that a template may write: those between its tags, and the strings in its code."""
    if (tree := _parsed(source)) is None:
        return ()
    strings = (one.value for one in tree.find_all(nodes.Const) if isinstance(one.value, str))
    return (*(one.data for one in tree.find_all(nodes.TemplateData)), *strings)


def _aliases(tree: nodes.Node, name: str) -> set[str]:
    """Return a variable's name, and those of the variables that it, or a part of its elements, is assigned to; "" for
    another target, such as `ns.messages`."""
    found, before = {name}, set[str]()
    while found != before:
        before = set(found)
        names = found - {""}
        found |= {
            _name(one.target) for one in tree.find_all(nodes.Assign) if any(_is_of(one.node, own) for own in names)
        }
    return found


def _is_of(node: nodes.Node, name: str, field: str | None = None) -> bool:
    """Return True if an expression is a variable or one of its fields, also through filters and slices."""
    match node:
        case (
            nodes.Filter(node=nodes.Node() as inner)
            | nodes.Test(node=inner)
            | nodes.Getitem(node=inner, arg=nodes.Slice())
        ):
            return _is_of(inner, name, field)
        case nodes.Getitem(node=nodes.Name(name=of), arg=nodes.Const(value=key)):
            return field is not None and (of, key) == (name, field)
        case nodes.Getattr(node=nodes.Name(name=of), attr=key):
            return field is not None and (of, key) == (name, field)
    return field is None and _name(node) == name


def _name(node: nodes.Node) -> str:
    return node.name if isinstance(node, nodes.Name) else ""


def _read_before_set(node: nodes.Node, known: set[str]) -> Iterator[str]:
    """Yield the names that are read before the template itself sets them, in the order of its text. Jinja's own search
    counts a name as undeclared that is set and read within a branch. `known`: the names set so far; grows."""
    match node:
        case nodes.Name(ctx="load"):
            if node.name not in known:
                yield node.name
        case nodes.Name():
            known.add(node.name)
        case nodes.Assign():
            yield from _read_before_set(node.node, known)
            yield from _read_before_set(node.target, known)
        case nodes.For():
            yield from _read_before_set(node.iter, known)
            yield from (name for child in node.iter_child_nodes() for name in _read_before_set(child, known))
        case _:
            yield from (name for child in node.iter_child_nodes() for name in _read_before_set(child, known))


class _Values:
    """Collects the constants that variables are compared with."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self._constants: dict[str, list[Scalar]] = {name: [] for name in names}
        self._conditions: set[str] = set()
        """Variables that are a condition by themselves: `{% if enable_thinking %}`."""
        self._printed: set[str] = set()
        """Variables whose value is used in any other way."""

    def of(self, name: str) -> tuple[Scalar, ...]:
        found = list(self._constants[name])
        is_flag = any(isinstance(one, bool) for one in found) or (
            name in self._conditions and name not in self._printed and not found
        )
        if is_flag:
            found += [True, False]
        return tuple({(type(one), one): one for one in found}.values())[:_VALUES_MAX]

    def visit(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.Name):
            self._printed.add(node.name)
            return
        for child in self._rest(node):
            self.visit(child)

    def _rest(self, node: nodes.Node) -> Iterator[nodes.Node]:
        """Record the comparisons and conditions in a node. Yields the child nodes that are still to be visited."""
        match node:
            case nodes.Compare():
                sides = [node.expr, *(one.expr for one in node.ops)]
                if all(one.op in _EQUAL for one in node.ops):
                    yield from self._compared(sides)
                else:
                    yield from sides
            case nodes.Test(node=nodes.Name(name=name)):
                if node.name in ("true", "false"):
                    self._note(name, node.name == "true")
                elif node.name == "boolean":
                    self._note(name, True)
                for one in node.args or ():
                    yield from self._compared([node.node, one])
            case nodes.Filter(node=nodes.Name() as filtered) if node.name in ("default", "d"):
                for one in node.args:
                    yield from self._compared([filtered, one])
            case nodes.If() | nodes.CondExpr():
                yield from self._condition(node.test)
                yield from (child for child in node.iter_child_nodes() if child is not node.test)
            case nodes.Not():
                yield from self._condition(node.node)
            case nodes.And() | nodes.Or():
                yield from self._condition(node.left)
                yield from self._condition(node.right)
            case nodes.Assign(target=nodes.Name(name=name)) if name in self.names:
                yield from self._assigned(name, node.node)
            case _:
                yield from node.iter_child_nodes()

    def _condition(self, node: nodes.Node) -> Iterator[nodes.Node]:
        if isinstance(node, nodes.Name):
            self._conditions.add(node.name)
        else:
            yield node

    def _compared(self, sides: list[nodes.Expr]) -> Iterator[nodes.Node]:
        names = [one.name for one in sides if isinstance(one, nodes.Name)]
        for one in sides:
            for constant in _constants(one):
                for name in names:
                    self._note(name, constant)
        yield from (one for one in sides if not isinstance(one, nodes.Name))

    def _assigned(self, name: str, value: nodes.Node) -> Iterator[nodes.Node]:
        """Record a default that a template sets for its own variable: `{% set x = x if x is defined else false %}`."""
        if isinstance(value, nodes.CondExpr):
            yield value.test
            for branch in (value.expr1, value.expr2):
                if branch is not None:
                    yield from self._assigned(name, branch)
        elif isinstance(value, nodes.Name) and value.name == name:
            return
        elif constants := list(_constants(value)):
            for constant in constants:
                self._note(name, constant)
        else:
            self._printed.add(name)
            yield value

    def _note(self, name: str, value: Scalar) -> None:
        if name in self._constants:
            self._constants[name].append(value)


def _constants(node: nodes.Node) -> Iterator[Scalar]:
    """Yield the values of a constant, or of the constants in a list or tuple."""
    if isinstance(node, nodes.Const):
        # `find_undeclared_variables` folds a list of constants into one constant.
        values = node.value if isinstance(node.value, list | tuple) else [node.value]
        yield from (
            one for one in values if isinstance(one, bool | float | str) or (isinstance(one, int) and abs(one) < 2**63)
        )
    elif isinstance(node, nodes.List | nodes.Tuple):
        for one in node.items:
            yield from _constants(one)
