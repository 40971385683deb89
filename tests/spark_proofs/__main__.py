"""`python -m tests.spark_proofs --sink echoless --target cluster --seed S`: one run and its verdict.

Exit status 1 when a record was lost, stored twice or out of order; the directory with the
checkpoint and every log is then kept.
"""

from __future__ import annotations

import sys

from tests.proofs.command import add_settings, parser_of, prove, settings_of
from tests.spark_proofs.ledgers import CHECKPOINT, LEDGERS
from tests.spark_proofs.plan import LONG_PLAN, Kind
from tests.spark_proofs.query import SINKS
from tests.spark_proofs.run import RunOptions, run
from tests.spark_proofs.targets import TARGETS


def main() -> int:
    parser = parser_of("spark_proofs", __doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--batches", type=int, default=100, help="of the query")
    parser.add_argument("--sink", choices=SINKS, default="echoless")
    parser.add_argument("--target", choices=sorted(TARGETS), default="echoless")
    parser.add_argument("--ledger", choices=LEDGERS, default=CHECKPOINT)
    parser.add_argument("--restarts", type=int, default=10, help="SIGKILLs of the driver")
    parser.add_argument("--only", nargs="+", choices=[kind.name for kind in Kind], default=None)
    add_settings(parser, "sink's")
    arguments = parser.parse_args()
    counts = {**LONG_PLAN, Kind.KILL_DRIVER: arguments.restarts}
    options = RunOptions(
        sink=arguments.sink,
        target=arguments.target,
        seed=arguments.seed,
        records=arguments.records,
        batches=arguments.batches,
        counts={
            k: n for k, n in counts.items() if arguments.only is None or k.name in arguments.only
        },
        sink_options=settings_of(arguments),
        ledger=arguments.ledger,
    )
    return prove("spark-proofs", arguments, lambda directory: run(directory, options))


if __name__ == "__main__":
    sys.exit(main())
