"""Adds the documentation to the wheel. In a checkout the app finds it in `docs/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Documentation(BuildHookInterface):  # type: ignore[type-arg]
    """Adds `docs/` to the package."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            build_data["force_include"][str(Path(self.root) / "docs")] = "vlmtui/docs"
