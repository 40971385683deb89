"""`python -m broker` is `echoless serve`."""

from __future__ import annotations

import sys

from broker.serve import main

if __name__ == "__main__":
    sys.exit(main())
