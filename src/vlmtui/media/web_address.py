"""Recognises web addresses, and removes possible secrets from them for display."""

from __future__ import annotations

from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from vlmtui.text import one_line

_LONGEST = 8000
_SHOWN_LONGEST = 120
_NAME_LONGEST = 120


def is_url(text: str) -> bool:
    """Whether `text` is exactly one `http` or `https` address."""
    bare = text.strip()
    if not bare or len(bare) > _LONGEST or any(char.isspace() or char < " " for char in bare):
        return False
    try:
        parts = urlsplit(bare)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def public_address(url: str) -> str:
    """Return the address without credentials, query and fragment, which may be secret; for storing and exporting."""
    parts = urlsplit(url.strip())
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def address_file_name(url: str) -> str:
    """The name of the file that an address names: the last part of its path; empty where that has none."""
    return unquote(urlsplit(url.strip()).path.rpartition("/")[2])[:_NAME_LONGEST]


def shown_address(address: SplitResult) -> str:
    """Return the address for a message, on one line, without credentials and query, which may be secret."""
    port = f":{address.port}" if address.port else ""
    text = one_line(f"{address.scheme}://{address.hostname}{port}{address.path}")
    return text if len(text) <= _SHOWN_LONGEST else f"{text[: _SHOWN_LONGEST - 1]}…"
