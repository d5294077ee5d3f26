"""Runs the zoo: `python -m tests.zoo [FAMILY...]` prints a table family by case. Exits 1 where a case failed.

Each family runs in a forked child of this process, which has imported vLLM already; its output goes into a file of its
own. `PYTHONPATH` has to begin with `src/vlmtui/worker/site`, which lets torchvision be imported beside a CPU build of
torch (`make zoo` sees to that).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.zoo.difference import page
from tests.zoo.kit import Recipe, load_recipes
from tests.zoo.record import record
from tests.zoo.trial import MODES, SHOWN, Results, run
from vlmtui.registry.loader import Registry
from vlmtui.registry.schema import Family

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
}
COLUMNS = tuple(f"{case} {mode}" for case in SHOWN for mode in MODES)


def fork_engines() -> None:
    """Have the engine's own processes forked off this one, too: that saves three more imports of vLLM a family.

    vLLM insists on spawning them on a CPU, and has a good reason only where threads run already.
    """
    from vllm.model_executor.models import registry

    real = multiprocessing.get_context
    multiprocessing.get_context = lambda method=None: real("fork")  # type: ignore[assignment]
    registry._run_in_subprocess = lambda ask: ask()  # about a model's class: each has one more import of vLLM


def in_a_child(
    recipe: Recipe, family: Family, base: Path, limit_s: int, what: Callable[[Recipe, Family, Path], Results] = run
) -> Results:
    """Run one family in a process group of its own, which is ended with everything in it."""
    folder = base / recipe.family
    folder.mkdir(parents=True, exist_ok=True)
    answer = folder / "results.json"
    answer.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        os.setsid()
        answer, folder = answer.resolve(), folder.resolve()
        os.chdir(folder)  # vLLM's sockets lie in the working directory
        with (folder / "log").open("w") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        try:
            answer.write_text(json.dumps(what(recipe, family, folder)))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(0)
    deadline = time.monotonic() + limit_s
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return {"load": f"not done after {limit_s} s"}
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not answer.exists():
        return {"load": f"its process died; see {folder / 'log'}"}
    results: Results = json.loads(answer.read_text())
    return results


def _short(text: str) -> str:
    return text.removeprefix("ok ") if text.startswith("ok") else "FAILED"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    parser.add_argument("--keep", type=Path, help="folder for checkpoints and logs (default: a temporary one)")
    parser.add_argument("--json", type=Path, help="also write the results there")
    parser.add_argument("--record", action="store_true", help="keep what was seen for the table of families")
    parser.add_argument("--page", type=Path, help="also write there how chat and raw prompts differ, in Markdown")
    parser.add_argument("--limit", type=int, default=300, metavar="S", help="seconds for one family")
    options = parser.parse_args()
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
    registry, recipes = Registry.bundled(), load_recipes()
    import vllm.v1.engine.async_llm  # noqa: F401 - so that no child has to

    fork_engines()
    results: dict[str, Results] = {}
    print(f"{'family':24}{'load':10}" + "".join(f"{column:12}" for column in COLUMNS), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.families or sorted(recipes):
            found = in_a_child(recipes[name], registry[name], options.keep or Path(temporary), options.limit)
            results[name] = found
            if options.record:
                record(name, found)
            row = [
                text if text.startswith("ok") else "FAILED"
                for text in (found.get(c, "ok -") for c in ("load", *COLUMNS))
            ]
            print(
                f"{name:24}{row[0][:9]:10}"
                + "".join(f"{text[3:] if text != 'FAILED' else text:12}" for text in row[1:]),
                flush=True,
            )
            for case, text in found.items():
                if not text.startswith("ok"):
                    print(f"    {case}: {text}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.page:
        options.page.parent.mkdir(exist_ok=True)
        options.page.write_text(page(results), encoding="utf-8")
    ran = [name for name, found in results.items() if all(text.startswith("ok") for text in found.values())]
    print(
        f"{len(ran)} of {len(results)} families answered every case; the numbers are the media's tokens in the prompt"
    )
    return 0 if len(ran) == len(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
