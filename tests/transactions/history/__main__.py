"""`python -m tests.transactions.history --seconds 600 --brokers 3 --seed S`: brokers killed under transactions, judged.

Exit status 1 when a promise was broken; the directory, with `history.pickle` and every log, is then kept.
"""

from __future__ import annotations

import sys

from tests.proofs.command import add_settings, parser_of, prove, settings_of
from tests.transactions.history.run import Options, run


def main() -> int:
    parser = parser_of("transactions.history", __doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--brokers", type=int, choices=[1, 3], default=3)
    parser.add_argument("--copier", choices=["librdkafka", "echoless"], default="echoless")
    add_settings(parser, "brokers'")
    arguments = parser.parse_args()
    options = Options(
        seconds=arguments.seconds,
        seed=arguments.seed,
        brokers=arguments.brokers,
        copier=arguments.copier,
        settings=settings_of(arguments),
    )
    return prove("transactions.history", arguments, lambda directory: run(directory, options))


if __name__ == "__main__":
    sys.exit(main())
