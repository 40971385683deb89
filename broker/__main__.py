"""`python -m broker` is `echoless serve`."""

from __future__ import annotations

import sys

from broker.garbage import begin_start
from broker.lean_imports import import_lean

if __name__ == "__main__":
    begin_start()
    import_lean()

    from broker.serve import main

    sys.exit(main())
