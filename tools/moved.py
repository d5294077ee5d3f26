"""Compare the functions of two commits, or of one and the tree: which were only moved, which were changed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path


def sources(commit: str | None) -> Iterator[str]:
    """Each Python file of src at a commit, or of the working tree."""
    if commit is None:
        yield from (path.read_text() for path in Path("src").rglob("*.py"))
        return
    names = subprocess.check_output(["git", "ls-tree", "-r", "--name-only", commit, "src"], text=True).split()
    for name in names:
        if name.endswith(".py"):
            yield subprocess.check_output(["git", "show", f"{commit}:{name}"], text=True)


def functions(commit: str | None) -> Counter[tuple[str, str]]:
    """(name, body) of each function and method, without docstrings; functions inside another belong to that one."""
    found: Counter[tuple[str, str]] = Counter()
    for text in sources(commit):
        for name, function in _outermost(ast.parse(text), ""):
            for part in ast.walk(function):
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(part) is not None:
                    part.body = part.body[1:] or [ast.Pass()]
            found[name, ast.dump(function)] += 1
    return found


def _outermost(tree: ast.AST, within: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for part in ast.iter_child_nodes(tree):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            yield within + part.name, part
        elif isinstance(part, ast.ClassDef):
            yield from _outermost(part, f"{within}{part.name}.")
        else:
            yield from _outermost(part, within)


before, after = functions(sys.argv[1]), functions(sys.argv[2] if len(sys.argv) > 2 else None)
gone = Counter(name for name, _ in (before - after).elements())
new = Counter(name for name, _ in (after - before).elements())
changed = gone & new
parts = {"changed": changed, "gone": gone - changed, "new": new - changed}
print(f"equal: {(before & after).total()}  " + "  ".join(f"{what}: {names.total()}" for what, names in parts.items()))
for what, names in parts.items():
    print(f"{what}: {' '.join(sorted(names))}")
