"""Adds the documentation and the manual pages to the wheel. In a checkout the app finds the former in `docs/`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Documentation(BuildHookInterface):  # type: ignore[type-arg]
    """Adds `docs/` to the package, and manual pages, which are written below `build/`, to `share/man`."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        sys.path[:0] = [str(root / "src"), str(root / "tools")]
        from man_pages import write_pages

        build_data["force_include"][str(root / "docs")] = "vlmtui/docs"
        for page in write_pages(root / "build" / "man"):
            build_data["shared_data"][str(page)] = f"share/man/man{page.suffix[1:]}/{page.name}"
