"""What some clients are known to do under faults that Echoless cannot mend, each with its reason.

Found by the soak and looked into; everything that is not named here breaks a run.
"""

from __future__ import annotations

from typing import Final

FATAL: Final = "fatal error"
GIVEN_UP: Final = "records given up"
DUPLICATED: Final = "duplicated"

KNOWN: Final[dict[tuple[str, str], str]] = {}
"""By client and what it does."""
