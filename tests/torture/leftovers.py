"""Files that nobody needs any more: sockets, temporary files, locks, answers that were fetched."""

from __future__ import annotations

import asyncio
from pathlib import Path

from vlmtui.engine.local.host import WorkerHost
from vlmtui.files import TEMPORARY_PREFIX
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.session.conversation_holder import remove_abandoned_files

_SPOOL = "kept"


def files_left(paths: Paths, temporary: Path, *, at_rest: bool) -> list[str]:
    """Return leftovers below the folder of `paths` and in the folder of temporary files.

    `at_rest`: all has ended in order, so that no app has a lock, no worker temporary files, and no answer is to be
    fetched. The lock files of a worker and of the database stay, as another process may just be waiting for one.
    """
    asyncio.run(WorkerHost(paths).find_all())  # as the next look at the workers does
    remove_abandoned_files(paths)  # as the next start does
    folders = {paths.config, paths.data, paths.state, paths.cache, paths.runtime}
    unfinished = {path for folder in folders for path in folder.rglob(f"{TEMPORARY_PREFIX}*")}
    found = [path for path in unfinished if path.is_file()]
    living = {endpoint.worker_id for endpoint in Endpoint.all(paths)}
    for path in paths.runtime.iterdir() if paths.runtime.is_dir() else ():
        if path.name != _SPOOL and path.suffix != ".lock" and path.stem not in living:
            found.append(path)
    if at_rest:
        found += list((paths.runtime / _SPOOL).glob("*"))
        found += list((paths.data / "sessions").glob("*"))
        found += list(temporary.rglob("*"))
    return sorted(str(path) for path in found)
