"""A pytest plugin: `pytest --vlmtui-golden DIR` checks golden prompts, a test each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from vlmtui.errors import VlmtuiError
from vlmtui.session.golden import CheckedGolden

_FOLDER = pytest.StashKey[Path]()
_CHECKED = pytest.StashKey[dict[Path, CheckedGolden]]()


class GoldenMovedError(Exception):
    """A prompt is not as it was recorded."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("vlmtui")
    group.addoption("--vlmtui-golden", metavar="DIR", help="check the golden prompts below this folder")


def pytest_configure(config: pytest.Config) -> None:
    given = config.getoption("--vlmtui-golden")
    if given is None:
        return
    folder = (config.invocation_params.dir / given).resolve()
    if not folder.is_dir():
        raise pytest.UsageError(f"--vlmtui-golden: {folder} is not a folder")
    config.stash[_FOLDER] = folder
    if str(folder) not in config.args:
        config.args.append(str(folder))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    folder = parent.config.stash.get(_FOLDER, None)
    if folder is None or file_path.suffix != ".json" or folder not in file_path.parents:
        return None
    file: GoldenFile = GoldenFile.from_parent(parent, path=file_path)
    return file


class GoldenFile(pytest.File):
    """One golden file."""

    def collect(self) -> Iterable[pytest.Item]:
        yield GoldenItem.from_parent(self, name="prompt")


class GoldenItem(pytest.Item):
    """Fails if the prompt has moved, or can't be made. The first one checks all, as models are read once."""

    def runtest(self) -> None:
        checked = _checked(self.config, [item.path for item in self.session.items if isinstance(item, GoldenItem)])
        found = checked[self.path]
        if found.error is not None or found.moved:
            from vlmtui.cli.golden import check_lines

            raise GoldenMovedError("\n".join(check_lines(found)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        if isinstance(excinfo.value, GoldenMovedError | VlmtuiError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"golden prompt {self.path.parent.name}/{self.path.name}"


def _checked(config: pytest.Config, paths: list[Path]) -> dict[Path, CheckedGolden]:
    known = config.stash.get(_CHECKED, None)
    if known is None:
        from vlmtui.bootstrap import build
        from vlmtui.cli.golden import golden_prompts

        results: Iterator[CheckedGolden] = iter(asyncio.run(golden_prompts(build()).check(paths)))
        known = config.stash[_CHECKED] = {one.path: one for one in results}
    return known
