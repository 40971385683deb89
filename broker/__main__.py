"""`python -m broker` is `echoless serve`."""

from __future__ import annotations

import sys

from broker.garbage import begin_start
from broker.start_code import use_start_code

if __name__ == "__main__":
    begin_start()
    use_start_code()

    from broker.lean_imports import import_lean

    import_lean()

    from broker.serve import main

    sys.exit(main())
