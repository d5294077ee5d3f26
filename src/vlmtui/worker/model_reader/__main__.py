"""`python -m vlmtui.worker.model_reader`: reads a ReadRequest as JSON from stdin, writes a ModelReading to stdout.

All other output, also that of the model's own code, goes to stderr.
"""

from __future__ import annotations

import os
import sys

import msgspec

from vlmtui.domain.model_reading import ReadRequest
from vlmtui.worker.model_reader.templates import limit_process


def main() -> int:
    limit_process()
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=ReadRequest)
    from vlmtui.worker.model_reader.reader import read_model

    with answer:
        answer.write(msgspec.json.encode(read_model(request)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
