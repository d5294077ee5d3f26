"""Runs many small cases in one test: setting up and reporting a test takes longer than most of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import settings


def in_one_test(cases: Mapping[str, tuple[Any, ...]]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Run a test function with each of these arguments, as `pytest.mark.parametrize` does, but as one test. All
    failures are raised together, each with the name of its case. For functions without fixtures."""

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        def run_all() -> None:
            failures: list[Exception] = []
            for name, arguments in cases.items():
                try:
                    test(*arguments)
                except Exception as error:
                    error.add_note(f"The case was {name}.")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(cases)} cases failed", failures)

        run_all.__name__, run_all.__doc__, run_all.__module__ = test.__name__, test.__doc__, test.__module__
        return run_all

    return decorate


def examples(count: int) -> int:
    """Return Hypothesis's number of examples: `count` in `make test`, a tenth in `make test-fast`."""
    return max(10, count * settings().max_examples // 100)
