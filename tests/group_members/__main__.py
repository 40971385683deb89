"""`python -m tests.group_members --seconds 300 --seed 7`: groups of real clients under disturbances."""

from __future__ import annotations

import sys

from tests.group_members.casts import CASTS
from tests.group_members.run import Options, Run
from tests.proofs.command import parser_of, prove


def main() -> int:
    """Run, and return the exit status."""
    parser = parser_of("group_members", __doc__)
    parser.add_argument("--seconds", type=float, help="default: each disturbance once")
    parser.add_argument("--casts", nargs="+", choices=list(CASTS), default=list(CASTS))
    arguments = parser.parse_args()
    casts = {name: CASTS[name] for name in arguments.casts}
    options = Options(casts=casts, seed=arguments.seed, seconds=arguments.seconds)
    return prove("group_members", arguments, lambda directory: Run(options, directory).run())


if __name__ == "__main__":
    sys.exit(main())
