#!/usr/bin/env python3
"""Write the argument names of the vLLM that Python finds to `tests/data/vllm_arguments.json`: `python
tools/vllm_arguments.py`.

Reads the classes that declare the arguments of vLLM's engine and server, without importing them.
`tests/unit/registry/test_engine_arguments.py` then fails for each name that `vlmtui.registry.engine_arguments` does not
classify. For another release than the installed one: `make test-vllm VERSION=… ARGS=tools/vllm_arguments.py`.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from pathlib import Path

from vlmtui.registry.routes import vllm_version

KNOWN = Path(__file__).resolve().parents[1] / "tests" / "data" / "vllm_arguments.json"


def declared(package: Path) -> set[str]:
    """Return the fields of every class in the files that declare vLLM's arguments. `package`: its folder `vllm`."""
    files = [package / "engine" / "arg_utils.py", *package.glob("entrypoints/**/cli_args.py")]
    classes = [node for file in files for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)]
    return {
        field.target.id
        for one in classes
        for field in one.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }


def main() -> int:
    version, spec = vllm_version(), importlib.util.find_spec("vllm")
    if version is None or spec is None or spec.origin is None:
        sys.exit("vLLM is not installed.")
    known = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    known[version] = sorted(declared(Path(spec.origin).parent))
    KNOWN.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
    print(f"{len(known[version])} arguments of vLLM {version}: {KNOWN}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
