"""`python -m echoless` is the command `echoless`."""

from __future__ import annotations

import sys

from echoless.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
