"""What the standard library compiles while modules are imported, kept from one start to the next.

Regular expressions are compiled in Python; the methods of dataclasses and named tuples are written as text and compiled
one by one. What is made of them depends on nothing but the text and the version of Python.
"""

from __future__ import annotations

import builtins
import collections
import dataclasses
import re
from importlib import import_module
from types import CodeType
from typing import Any

Pattern = tuple[str | bytes, int]
"""A regular expression and its flags."""
PatternCode = tuple[int, list[int], int, dict[str, int], tuple[str | None, ...]]
"""All flags, the code, the number of groups, and which have which name. The engine checks it whenever it is taken."""
Text = tuple[str, str]
"""Source text, and whether it is to `exec` or to `eval`."""
Compiled = tuple[dict[Pattern, PatternCode], dict[Text, CodeType]]
_NOT_KEPT = re.LOCALE.value | re.DEBUG.value
"""Flags of patterns that depend on the language's settings, or that are to be printed."""


class StartCompiled:
    """Takes the place of the functions that compile, from `begin` to `end`."""

    def __init__(self, known: Compiled) -> None:
        self._patterns, self._texts = known
        self._missed_patterns: list[Pattern] = []
        self._missed_texts: dict[Text, CodeType] = {}
        self._compiler: Any = None
        self._compile: Any = None
        self._engine: Any = None

    def begin(self) -> None:
        """From now on take what is known."""
        setattr(dataclasses, "exec", self._exec)  # noqa: B010 - their own name for the builtin function
        setattr(collections, "eval", self._eval)  # noqa: B010
        try:
            compiler: Any = import_module("re._compiler")
            engine: Any = import_module("_sre")
            self._compile, self._engine = compiler.compile, engine.compile
        except (ImportError, AttributeError):  # another Python may have it elsewhere
            return
        self._compiler = compiler
        compiler.compile = self._compile_pattern

    def end(self) -> None:
        """Compile as usual from now on."""
        if self._compiler is not None:
            self._compiler.compile, self._compiler = self._compile, None
        vars(dataclasses).pop("exec", None)
        vars(collections).pop("eval", None)

    @property
    def is_complete(self) -> bool:
        """Whether everything was known."""
        return not self._missed_patterns and not self._missed_texts

    def all(self) -> Compiled:
        """Return what was known together with what was compiled."""
        made = {pattern: code for pattern in self._missed_patterns if (code := _code_of(*pattern)) is not None}
        return self._patterns | made, self._texts | self._missed_texts

    def _compile_pattern(self, p: Any, flags: int = 0) -> Any:
        if not isinstance(p, str | bytes) or flags & _NOT_KEPT:
            return self._compile(p, flags)
        known = self._patterns.get((p, flags))
        if known is not None:
            return self._engine(p, *known)
        compiled = self._compile(p, flags)
        if not compiled.flags & _NOT_KEPT:
            self._missed_patterns.append((p, flags))
        return compiled

    def _exec(self, source: Any, *namespaces: Any) -> None:
        builtins.exec(self._code_of(source, "exec"), *namespaces)

    def _eval(self, source: Any, *namespaces: Any) -> Any:
        return builtins.eval(self._code_of(source, "eval"), *namespaces)

    def _code_of(self, source: Any, mode: str) -> Any:
        if not isinstance(source, str):
            return source
        code = self._texts.get((source, mode)) or self._missed_texts.get((source, mode))
        if code is None:
            code = self._missed_texts[source, mode] = compile(source, "<string>", mode, dont_inherit=True)
        return code


def _code_of(pattern: str | bytes, flags: int) -> PatternCode | None:
    """Return the code of a pattern, as `re` makes it; None where this Python makes it in another way."""
    try:
        parser, compiler = import_module("re._parser"), import_module("re._compiler")
        parsed = parser.parse(pattern, flags)
        code = [int(one) for one in compiler._code(parsed, flags)]
        names = {str(name): int(number) for name, number in parsed.state.groupdict.items()}
        groups = int(parsed.state.groups)
        all_flags = int(flags | parsed.state.flags)
    except (ImportError, AttributeError, TypeError, re.error):
        return None
    of_group: list[str | None] = [None] * groups
    for name, number in names.items():
        of_group[number] = name
    return all_flags, code, groups - 1, names, tuple(of_group)
