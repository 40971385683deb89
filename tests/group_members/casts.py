"""The groups that runs play with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tests.compatibility.programs import FRANZ_GO, JAVA, LIBRDKAFKA
from tests.group_members.members import KAFKAJS_KIND, Kind, kinds_of

CASTS: Final[Mapping[str, Sequence[Kind]]] = {
    "range": kinds_of("range"),
    "roundrobin": kinds_of("roundrobin"),
    "cooperative-librdkafka": [Kind(LIBRDKAFKA, "cooperative-sticky")] * 3,
    "cooperative-java-3": [Kind(JAVA[0], "cooperative-sticky")] * 2,
    "cooperative-java-4": [Kind(JAVA[1], "cooperative-sticky")] * 2,
    "cooperative-franz-go": [Kind(FRANZ_GO, "cooperative-sticky")] * 3,
    "kafkajs": [KAFKAJS_KIND] * 2,
    "consumer": [
        Kind(LIBRDKAFKA, "uniform", protocol="consumer"),
        Kind(LIBRDKAFKA, "uniform", protocol="consumer"),
        Kind(JAVA[1], "uniform", protocol="consumer"),
    ],
}
"""By name: the kinds of a group's members. Clients of every language share a group where their assignors' names agree."""
SHORT: Final = ("range", "cooperative-librdkafka", "kafkajs", "consumer")
"""Those of `make test`: every client once."""
