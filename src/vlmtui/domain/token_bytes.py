"""The bytes behind an entry of a tokenizer's vocabulary."""

from __future__ import annotations

import re

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def bytes_of_entry(entry: str) -> bytes | None:
    """Return the bytes of a vocabulary entry of byte-level BPE (`âĤ`) or of a byte fallback (`<0xE2>`), else None."""
    if match := _BYTE.fullmatch(entry):
        return bytes([int(match[1], 16)])
    values = [_BYTE_OF.get(char) for char in entry]
    return bytes(value for value in values if value is not None) if values and None not in values else None


def is_text(data: bytes) -> bool:
    """Return True if the bytes are valid UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's mapping of bytes to characters: printable bytes map to themselves, the others to U+0100 and above."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + number): byte for number, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()
