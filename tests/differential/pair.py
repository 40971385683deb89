"""The two brokers of a run, in a directory in memory where there is one: restarts cost files."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.differential.run import KAFKA_SETTINGS, Broker, Contest
from tests.support.apache_kafka import ApacheKafka
from tests.support.cluster_security import ClusterSecurity
from tests.support.echoless import Echoless
from tests.support.raw_client import RawConnection

_MEMORY = Path("/dev/shm")


@contextlib.contextmanager
def contest(
    seed: int, *, kafka_only: bool = False, module: str = "broker", is_secured: bool = False
) -> Iterator[Contest]:
    """Both brokers, ready to play histories of `seed`.

    `kafka_only`: the other broker is a second Apache Kafka. `module` is what Echoless is started
    from, `python -m <module>`. `is_secured`: Echoless is asked over TLS, with log-ins and ACLs.
    """
    attempts = itertools.count()

    def make_other(settings: dict[str, str]) -> Broker:
        place = directory / f"other-{next(attempts)}"
        if kafka_only:
            return ApacheKafka(place, KAFKA_SETTINGS)
        if security is None:
            return Echoless(place, settings, module=module)
        security.add_users("--data-dir", str(place / "echoless-data"))
        return Echoless(place, {**security.settings, **settings}, module=module)

    with _directory() as directory:
        security = ClusterSecurity(directory / "security", session_ms=0) if is_secured else None
        open_other = RawConnection.open if security is None else security.connect
        kafka = ApacheKafka(directory / "kafka", KAFKA_SETTINGS)
        try:
            kafka.start()
            yield Contest(
                kafka, make_other, seed, is_echoless=not kafka_only, open_other=open_other
            )
        finally:
            kafka.kill()


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    parent = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(
        prefix="differential-", dir=parent, ignore_cleanup_errors=True
    ) as directory:
        yield Path(directory)
