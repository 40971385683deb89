"""`python -m tests.models [--quick]`: checks the models of transactions; exits 1 when one does not do what it has to.

Without spin and gcc (`python -m tests.toolchain` installs them where it can) nothing is checked, and the exit status is 2.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time

from tests.models.checks import CHECKS
from tests.models.spin import PROGRAMS, ModelError, run


def main() -> int:
    """Prints a line for each check."""
    parser = argparse.ArgumentParser(prog="python -m tests.models", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only those of the suite")
    options = parser.parse_args()
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        print(f"{' and '.join(missing)} missing: `python -m tests.toolchain` installs them")
        return 2
    failures = 0
    for check in CHECKS:
        if options.quick and not check.is_quick:
            continue
        begun = time.monotonic()
        try:
            found = run(check)
        except ModelError as error:
            failures += 1
            print(error)
            continue
        outcome = "violated" if found.violation else "holds"
        is_right = check.holds != bool(found.violation)
        failures += not is_right
        note = "" if is_right else " -- WRONG"
        seconds = time.monotonic() - begun
        print(
            f"{outcome:8}  {found.states:10,} states {seconds:6.1f} s  {check.name}{note}",
            flush=True,
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
