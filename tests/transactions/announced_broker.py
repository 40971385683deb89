"""`echoless serve` of a broker that announces transactions, whether this release does or not."""

from __future__ import annotations

import sys

from echoless.broker.config import feature_levels

feature_levels.SERVES_TRANSACTIONS = True  # type: ignore[misc]

from echoless.broker.serve import main  # noqa: E402 - the table of APIs is made when it is imported

if __name__ == "__main__":
    sys.exit(main())
