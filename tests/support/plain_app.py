"""Plain mode with a scripted engine, as a program for a pseudo-terminal: `python -m tests.support.plain_app FOLDER`.
`answers.json` in the folder lists the answers, each a list of texts; at the text `HOLD` the answer waits until it is
stopped."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.support.scripted_engine import Hold, ScriptedHost, Step
from vlmtui.config.settings import Settings
from vlmtui.paths import Paths
from vlmtui.plain.repl import run_plain
from vlmtui.registry.loader import Registry
from vlmtui.session.async_store import AsyncStore
from vlmtui.ui.services import Services

HOLD = "HOLD"


def main(folder: Path) -> int:
    paths = Paths.below(folder)
    answers = json.loads((folder / "answers.json").read_text()) if (folder / "answers.json").exists() else []
    script: list[list[Step]] = [
        [Hold(asyncio.Event()) if step == HOLD else step for step in answer] for answer in answers
    ]
    host = ScriptedHost(answers=script)
    status, report = run_plain(
        Services(
            paths=paths,
            settings=Settings(),
            registry=Registry.bundled(),
            host=host,
            store=AsyncStore(paths),
            keep_alive_s=0,
            initial_model="shapes",
        )
    )
    print(f"saved {not status} conversation {bool(report.conversation)}")
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
