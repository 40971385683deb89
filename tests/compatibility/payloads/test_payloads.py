"""Payloads of all codecs, in every form that encoders and careless ones write: stored only if every consumer reads them.

Long: `python -m tests.proofs --only payloads`.
"""

from __future__ import annotations

import random
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from echoless.protocol.record_batch import Codec
from tests.compatibility.payloads import lz4_frames, snappy_frames, zstd_frames
from tests.compatibility.payloads.contest import REFUSED, STORED, TAKEN_BY_KAFKA, contest
from tests.compatibility.payloads.payload import random_payload
from tests.support.apache_kafka import ApacheKafka
from tests.support.echoless import Echoless

_PAYLOADS = 160


@pytest.mark.clients
@pytest.mark.kafka
@pytest.mark.slow
async def test_what_is_stored_is_read_by_every_consumer(
    broker: Echoless, apache_kafka: ApacheKafka, tmp_path: Path
) -> None:
    """By Java, librdkafka and franz-go, byte for byte; and nothing is stored that Kafka refuses."""
    addresses = broker.kafka_address, apache_kafka.address
    findings = await contest(*addresses, 7, range(_PAYLOADS), tmp_path)
    assert not findings.problems, "\n".join(findings.problems)
    for kind in (STORED, REFUSED, TAKEN_BY_KAFKA):
        assert findings.counts[kind] > _PAYLOADS // 20, "the generator makes all kinds"


def test_a_payload_depends_on_its_seed_and_number_alone() -> None:
    """A finding of a long run is played again by its number; all codecs occur."""
    payloads = [random_payload(1, number) for number in range(40)]
    assert payloads == [random_payload(1, number) for number in range(40)]
    assert {payload.codec for payload in payloads} == {*Codec} - {Codec.NONE}


@pytest.mark.parametrize("seed", range(30))
def test_frames_written_by_hand_are_right(seed: int) -> None:
    """Those that say that nothing is wrong are read by the libraries."""
    rng = random.Random(seed)
    data = rng.randbytes(rng.choice((0, 1, 15, 16, 100))) * rng.choice((1, 10, 1000))
    frame, about = lz4_frames._by_hand(rng, data)
    if about.endswith("nothing"):
        assert lz4.frame.decompress(frame) == data
    frame, about = zstd_frames._by_hand(rng, data)
    if about.endswith("nothing"):
        assert zstandard.ZstdDecompressor().decompressobj().decompress(frame) == data
    import snappy

    literals = snappy_frames._varint(len(data)) + snappy_frames._elements(rng, data)
    assert snappy.uncompress(literals) == data
