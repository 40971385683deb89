"""`python -m echoless.broker` is `echoless serve`."""

from __future__ import annotations

import sys

from echoless.broker.garbage import begin_start

if __name__ == "__main__":
    begin_start()

    from echoless.broker.without_openssl import import_asyncio

    import_asyncio()

    from echoless.broker.serve import main

    sys.exit(main())
