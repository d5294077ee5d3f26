"""Upgrades JSON written by earlier versions to the current field names."""

from __future__ import annotations

import msgspec

_MARKS = (b'"vllm_version"', b'"sides"')
_SIDE_SAMPLING = ("seed", "temperature", "top_p", "max_tokens")
"""Sampling parameters that used to be fields of a comparison's side."""


def upgrade_fields(data: bytes) -> bytes:
    """Upgrade the JSON of a generation record, a comparison or a conversation: `vllm_version` becomes `engine` and
    `engine_version`, and a side's sampling parameters move into its `sampling`. Other data is returned unchanged, so
    that the decoder reports what is wrong."""
    if not any(mark in data for mark in _MARKS):
        return data
    try:
        read = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data
    _rename(read)
    for turn in _dicts(read, "turns"):
        _rename(turn.get("recipe"))
    for side in _dicts(read, "sides"):
        own = {name: value for name in _SIDE_SAMPLING if (value := side.pop(name, None)) is not None}
        if own:
            side["sampling"] = own
    return msgspec.json.encode(read)


def _rename(record: object) -> None:
    if isinstance(record, dict) and "vllm_version" in record and "engine" not in record:
        version = record.pop("vllm_version")
        record["engine"] = "vLLM" if version else ""
        record["engine_version"] = version


def _dicts(record: object, name: str) -> list[dict[str, object]]:
    """Return the objects in the list `name` of a record."""
    found = record.get(name) if isinstance(record, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
