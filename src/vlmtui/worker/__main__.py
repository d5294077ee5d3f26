"""`python -m vlmtui.worker` runs the guardian, which starts the server."""

import sys

from vlmtui.worker.guardian import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
