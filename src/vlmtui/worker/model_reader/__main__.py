"""`python -m vlmtui.worker.model_reader`: reads a ReadRequest as JSON from stdin, writes a ModelReading to stdout.

All other output, also that of the model's own code, goes to stderr.
"""

from __future__ import annotations

import os
import sys

import msgspec

from vlmtui.domain.model_reading import ReadRequest
from vlmtui.processes import limit_process
from vlmtui.worker.template_process import forbid_network

DATA_BYTES = 6 * 2**30
"""The most memory that the process may allocate."""
CPU_S = 300
"""The most seconds of processor time for the process."""
FILE_BYTES = 64_000_000
"""The largest file that the process may write."""


def main() -> int:
    limit_process(memory_bytes=DATA_BYTES, cpu_s=CPU_S, file_bytes=FILE_BYTES)
    forbid_network()
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=ReadRequest)
    from vlmtui.worker.model_reader.reader import read_model

    with answer:
        answer.write(msgspec.json.encode(read_model(request)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
