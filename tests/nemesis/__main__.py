"""`python -m tests.nemesis --seconds 600 --seed S`: one run, its verdict, and where its logs are.

Exit status 1 when the promise was broken; the directory with every log is then kept.
"""

from __future__ import annotations

import sys

from tests.nemesis.plan import Kind
from tests.nemesis.run import Options, run
from tests.proofs.command import (
    add_security,
    add_settings,
    parser_of,
    prove,
    security_of,
    settings_of,
)


def main() -> int:
    parser = parser_of("nemesis", __doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--rate", type=float, default=0.0, help="records a second per producer")
    parser.add_argument("--idle-partitions", type=int, default=0, help="beside the busy ones")
    parser.add_argument("--only", nargs="+", choices=[kind.name for kind in Kind], default=None)
    add_security(parser)
    add_settings(parser, "brokers'")
    arguments = parser.parse_args()
    kinds = tuple(Kind) if arguments.only is None else [Kind[name] for name in arguments.only]
    options = Options(
        seconds=arguments.seconds,
        seed=arguments.seed,
        rate=arguments.rate,
        idle_partitions=arguments.idle_partitions,
        kinds=kinds,
        settings=settings_of(arguments),
        security=security_of(arguments),
    )
    return prove("nemesis", arguments, lambda directory: run(directory, options))


if __name__ == "__main__":
    sys.exit(main())
