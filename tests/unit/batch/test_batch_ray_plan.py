"""What Ray is told to have, so that it never waits for what cannot come. Ray itself is not needed."""

from __future__ import annotations

from typing import Any

import pytest

from vlmtui.cli.batch_ray import local_cpus, require_gpus
from vlmtui.errors import ErrorKind, VlmtuiError


@pytest.mark.parametrize(("actors", "each"), [(1, None), (2, 1.0), (8, None), (3, 4.0), (100, 0.5)])
def test_a_ray_of_this_machine_has_processors_left_beside_its_actors(actors: int, each: float | None) -> None:
    arguments: dict[str, Any] = {"actors": actors, "actor_cpus": each}
    assert local_cpus(arguments) - actors * (0.5 if each is None else each) >= 2


def test_more_gpus_than_there_are_is_said_at_once() -> None:
    require_gpus(2, 0, 0)
    require_gpus(2, 0.5, 1)
    with pytest.raises(VlmtuiError) as raised:
        require_gpus(3, 0.5, 1)
    assert raised.value.kind is ErrorKind.UNSUPPORTED
    assert "3 actors need 1.5 GPUs; Ray finds 1 here." in str(raised.value)
