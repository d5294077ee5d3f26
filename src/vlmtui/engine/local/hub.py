"""Finds out before a load whether a model that is not on this machine can be downloaded."""

from __future__ import annotations

import os
import re
import socket
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from vlmtui.domain.engine import REMOTE_BACKEND, LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.hub_cache import model_folder
from vlmtui.registry.match import REPOSITORY
from vlmtui.text import one_line

_HUB = "https://huggingface.co"
_OTHER_HUB = ("VLLM_USE_MODELSCOPE",)
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_ON = frozenset({"1", "true", "yes", "on"})
_PORTS = {"https": 443, "http": 80}
_CONNECT_S = 3.0


def hub_error(spec: LoadSpec) -> VlmtuiError | None:
    """Return an error (NO_NETWORK) if the model is not on this machine, and the hub can't be reached. None also if the
    hub does not answer in time: the network may be slow. Blocking, for a few seconds at most."""
    is_elsewhere = spec.backend == REMOTE_BACKEND or "download_dir" in spec.engine_args or _is_on(_OTHER_HUB)
    if is_elsewhere or not re.fullmatch(REPOSITORY, spec.model, re.ASCII) or model_folder(spec.model, spec.revision):
        return None
    if found := _is_on(_OFFLINE):
        return _error(spec, f"{found} forbids downloads", hint=f"Unset {found}, or give a local folder.")
    hub = urlsplit(os.environ.get("HF_ENDPOINT") or _HUB)
    host = hub.hostname or ""
    try:
        proxies = {} if proxy_bypass(host) else getproxies()
        proxy = proxies.get(hub.scheme) or proxies.get("all") or ""
        asked = urlsplit(proxy if "//" in proxy else f"http://{proxy}") if proxy else hub
        socket.create_connection((asked.hostname, asked.port or _PORTS.get(asked.scheme, 443)), _CONNECT_S).close()
    except TimeoutError:
        return None
    except (OSError, ValueError) as error:
        hint = "Check the network (HTTPS_PROXY, HF_ENDPOINT), or give a local folder."
        return _error(spec, f"{one_line(host)} can't be reached", detail=str(error), hint=hint)
    return None


def _is_on(names: tuple[str, ...]) -> str:
    """Return the first of these variables of the environment that is switched on; empty if none is."""
    return next((name for name in names if os.environ.get(name, "").casefold() in _ON), "")


def _error(spec: LoadSpec, why: str, *, detail: str = "", hint: str) -> VlmtuiError:
    message = f"{one_line(spec.name)} is not on this machine, and {why}."
    return VlmtuiError(ErrorKind.NO_NETWORK, message, detail=detail, hint=hint)
