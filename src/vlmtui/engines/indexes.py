"""Translates pip's configuration for uv, which does not read it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from vlmtui.processes import python_command, safe_environment

_ASK_TIMEOUT_S = 60.0
_IN_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
"""pip's options and the corresponding variables of uv."""
_LISTS = {"UV_INDEX": " ", "UV_FIND_LINKS": ",", "UV_INSECURE_HOST": " "}
_TRUE = ("1", "true", "yes", "on")


def uv_environment(python: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return `given` with pip's configuration added for uv; variables already set for uv take precedence.

    `python`: an interpreter that has pip.
    """
    return {**uv_variables(pip_options(python, given), given), **given}


def pip_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return `given` with settings for pip; SSL_CERT_FILE applies to pip as well."""
    certificates = given.get("SSL_CERT_FILE", "")
    extra = {"PIP_CERT": certificates} if certificates and Path(certificates).is_file() else {}
    return {**extra, **given, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}


def uv_variables(options: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return pip's options as uv's variables. All indexes rank equally, as in pip; hashes are locked."""
    said = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}
    for option, value in options.items():
        variable = _IN_UV.get(option)
        if variable in _LISTS:
            said[variable] = _LISTS[variable].join(value.split())
        elif variable:
            said[variable] = value.strip()
    if options.get("no-index", "").strip().lower() in _TRUE:
        said["UV_NO_INDEX"] = "1"
    if "SSL_CERT_FILE" not in {**said, **given}:
        said["UV_SYSTEM_CERTS"] = said["UV_NATIVE_TLS"] = "1"  # the newer and the older name
    return said


def pip_options(python: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return pip's options from its config files and the environment; only the environment's if pip does not run."""
    known = {name[4:].lower().replace("_", "-"): value for name, value in given.items() if name.startswith("PIP_")}
    command = python_command(python, "-m", "pip", "config", "list")
    try:
        listed = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
            check=False,
            env=safe_environment(given),
            cwd=os.sep,
        )
    except (OSError, subprocess.TimeoutExpired):
        return known
    options: dict[str, str] = {}
    rank: dict[str, int] = {}
    for section, option, value in re.findall(r"^(global|install)\.([\w-]+)=(.*)$", listed.stdout, re.MULTILINE):
        strength = ("global", "install").index(section)
        if strength >= rank.get(option, 0):
            rank[option], options[option] = strength, _unquoted(value)
    return {**options, **known}


def _unquoted(value: str) -> str:
    try:
        return str(ast.literal_eval(value))
    except (SyntaxError, ValueError):
        return value
