"""`python -m vlmtui`: the same as `vlmtui`."""

import sys

from vlmtui.cli import main

sys.exit(main())
