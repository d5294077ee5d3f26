"""`python -m vlmtui.worker`: the guardian of a worker."""

import sys

from vlmtui.worker.guardian import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
