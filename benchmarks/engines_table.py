"""The bundled model on four engines, for docs/check.md: `python -m benchmarks.engines_table [VERSION]`.

`vlmtui check` compares vLLM in the worker with `vllm serve` of the same release, with `vllm serve` of VERSION (0.33.0,
its Python code over the installed compiled parts), and with Transformers: the built-in conversations, chat and raw.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from other_vllm import download, lay_over
from tests.support.vllm_server import SOURCE, VllmServer, free_port
from tests.zoo.parity_table import ALIKE, HEAD, TOO_CERTAIN, found_of, row
from vlmtui.paths import bundled
from vlmtui.session.check.run import CheckResult

PAGE = Path(__file__).parents[1] / "docs" / "check.md"
BEGIN, END = "<!-- engines: python -m benchmarks.engines_table -->\n", "<!-- /engines -->\n"


def checked(servers: Sequence[str], home: Path) -> dict[str, list[CheckResult]]:
    """Return the comparisons of each engine with vLLM in the worker, by the engine's name and the version that it
    reports."""
    command = [sys.executable, "-m", "vlmtui", "check", "--mode", "both", "--json", "--on", "shapes"]
    command += [word for engine in ("transformers:shapes", *servers) for word in ("--on", engine)]
    environment = {**os.environ, "VLMTUI_DATA_DIR": str(home), "HOME": str(home)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)
    report = json.loads(done.stdout)
    results = msgspec.convert(report["results"], list[CheckResult])
    found = {}
    for one in report["engines"][1:]:
        title = f"{one['fingerprint']['engine']} {one['fingerprint']['engine_version']}"
        found[title] = [result for result in results if result.engine == one["engine"]]
    return found


def table(found: dict[str, list[CheckResult]]) -> Iterator[str]:
    """Yield the lines of the table, and the first difference of each engine that has one. This model's weights are
    trained, so that equal numbers say more than that one token has all the probability."""
    yield HEAD.replace("family", "engine", 1)
    summaries = {title: found_of(cases) for title, cases in found.items()}
    for title, one in summaries.items():
        if one.verdict == TOO_CERTAIN:
            summaries[title] = msgspec.structs.replace(one, verdict=ALIKE)
    yield from (row(title, one) for title, one in summaries.items())
    yield from (f"\n{title}: {one.first or one.failed}" for title, one in summaries.items() if one.first or one.failed)


def main(version: str = "0.33.0") -> int:
    installed = find_spec("vllm")
    assert installed is not None and installed.origin is not None, "vLLM is not installed"
    with tempfile.TemporaryDirectory(prefix="vlmtui-", dir="/tmp", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        for name in ("home", "here", "other", "wheel", "release"):
            (folder / name).mkdir()
        lay_over(download(version, folder / "wheel"), Path(installed.origin).parent, folder / "release")
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder / "release")]
        subprocess.run([*install, "orjson"], check=True)  # 0.33's server needs it
        path = os.pathsep.join(map(str, (SOURCE, SOURCE / "vlmtui" / "worker" / "site", folder / "release")))
        ports = [str(free_port()), str(free_port())]
        servers = [
            VllmServer(str(bundled("shapes")), folder / "here", ["--port", ports[0]]),
            VllmServer(str(bundled("shapes")), folder / "other", ["--port", ports[1]], PYTHONPATH=path),
        ]
        addresses = [f"http://127.0.0.1:{port}" for port in ports]
        try:
            for address, server in zip(addresses, servers, strict=True):
                server.wait_until_ready(address)
            lines = list(table(checked(addresses, folder / "home")))
        finally:
            for server in servers:
                server.end()
    print(*lines, sep="\n")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
