"""`ask --fan-out`: one question with several values of a sampling parameter."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from vlmtui.cli.asking import Asked
from vlmtui.cli.output import note
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.session import new_request_id
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.inspection.replay import SIDES_MAX

PARAMETERS = {"seed": int, "temperature": float}
_EXAMPLES = "For instance --fan-out seed=1,2,3 or --fan-out temperature=0,0.7,1."


def fanned_out(asked: Asked, given: str) -> list[Asked]:
    """The request with each of the values. Raises VlmtuiError(BAD_USAGE) for what is no list of them."""
    name, values = parse_fan_out(given)
    if name == "seed" and asked.request.sampling.temperature == 0:
        note("warning: at temperature 0 all seeds give the same answer; --temperature sets another.")
    return list(_each(asked, name, values))


def parse_fan_out(given: str) -> tuple[str, list[int | float]]:
    """The parameter's name and its values, `("seed", [1, 2, 3])`."""
    name, _, text = given.partition("=")
    name = name.strip()
    if name not in PARAMETERS:
        raise _wrong(f"{name!r} cannot be fanned out over: it must be {' or '.join(PARAMETERS)}.")
    words = [word.strip() for word in text.split(",")]
    try:
        values: list[int | float] = [PARAMETERS[name](word) for word in words]
    except ValueError:
        raise _wrong(f"{text!r} is no list of values of {name}.") from None
    if len(values) > SIDES_MAX:
        raise _wrong(f"At most {SIDES_MAX} values can be asked for at the same time, not {len(values)}.")
    for value in values:
        if problem := _sampling_with(Sampling(), name, value).problem():
            raise _wrong(f"--fan-out: {problem}.")
    return name, values


def _each(asked: Asked, name: str, values: list[int | float]) -> Iterator[Asked]:
    for value in values:
        request = msgspec.structs.replace(
            asked.request,
            request_id=new_request_id(),
            sampling=_sampling_with(asked.request.sampling, name, value),
        )
        label = f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        if name == "seed":
            yield Asked(asked.mode, request, label, seed=int(value))
        else:
            yield Asked(asked.mode, request, label, temperature=value)


def _sampling_with(sampling: Sampling, name: str, value: int | float) -> Sampling:
    if name == "seed":
        return msgspec.structs.replace(sampling, seed=int(value))
    return msgspec.structs.replace(sampling, temperature=float(value))


def _wrong(message: str) -> VlmtuiError:
    return VlmtuiError(ErrorKind.BAD_USAGE, message, hint=_EXAMPLES)
