"""`python -m echoless.broker` is `echoless serve`."""

from __future__ import annotations

import sys

from echoless.broker.garbage import begin_start
from echoless.broker.start_code import use_start_code

if __name__ == "__main__":
    begin_start()
    use_start_code()

    from echoless.broker.lean_imports import import_lean

    import_lean()

    from echoless.broker.serve import main

    sys.exit(main())
