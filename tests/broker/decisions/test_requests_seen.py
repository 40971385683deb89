"""Requests as events: Produce with its batches, others by name, and bounds on what is read on the event loop."""

from __future__ import annotations

import uuid

import pytest

from echoless.broker.decisions.requests_seen import BATCHES_MAX, RECORD_BYTES_MAX, request_seen
from echoless.broker.handlers.apis import API_BY_KEY
from echoless.broker.network.request import Peer
from echoless.client.messages import encode_produce_of, encode_request
from echoless.client.produce_request import PartitionBatch
from echoless.protocol.framing import LENGTH_SIZE
from echoless.protocol.record_batch import HEADER_SIZE
from echoless.protocol.records import Record, build_batch

PEER = Peer(3, "10.0.0.1:5000", principal="User:alice")


def _batch(value: bytes = b"value") -> bytes:
    return build_batch(
        [Record(0, 5, None, value)], producer_id=7, producer_epoch=1, base_sequence=4
    )


def _produce(version: int, *batches: PartitionBatch) -> bytes:
    parts = encode_produce_of(version, 12, batches, timeout_ms=1000, transactional_id="tx")
    return b"".join(parts)[LENGTH_SIZE:]


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize("with_records", [True, False])
def test_produce_is_read_for_its_batches(version: int, with_records: bool) -> None:
    frame = _produce(version, PartitionBatch("t", 2, _batch()))
    seen = request_seen(frame, PEER, API_BY_KEY, {}, with_records=with_records)
    assert seen is not None
    assert (seen.api, seen.version, seen.size_bytes) == ("produce", version, len(frame))
    assert (seen.transactional_id, seen.acks, seen.correlation_id) == ("tx", -1, 12)
    assert (seen.connection_id, seen.principal) == (3, "User:alice")
    (batch,) = seen.batches
    assert (batch.topic, batch.partition) == ("t", 2)
    assert (batch.header.producer_id, batch.header.base_sequence) == (7, 4)
    assert batch.records == (_batch()[HEADER_SIZE:] if with_records else None)
    assert seen.subjects() == [(7, "t", 2)]


def test_nothing_is_kept_of_the_bodies_of_others() -> None:
    """A log-in has a password in it."""
    fields = {"auth_bytes": b"\0alice\0secret"}
    frame = encode_request("sasl_authenticate", 2, 12, fields)[LENGTH_SIZE:]
    seen = request_seen(frame, PEER, API_BY_KEY, {}, with_records=True)
    assert seen is not None
    assert seen.api == "sasl_authenticate"
    assert "secret" not in repr(seen)


def test_what_is_read_and_copied_on_the_event_loop_is_bounded() -> None:
    """Very many batches are left out, and the request says so; very large records are not copied."""
    many = [PartitionBatch("t", index, _batch()) for index in range(BATCHES_MAX)]
    seen = request_seen(_produce(9, *many), PEER, API_BY_KEY, {}, with_records=True)
    assert seen is not None
    assert (seen.batches, seen.is_cut) == ((), True)
    large = PartitionBatch("t", 0, _batch(bytes(RECORD_BYTES_MAX)))
    seen = request_seen(_produce(9, large), PEER, API_BY_KEY, {}, with_records=True)
    assert seen is not None
    assert [one.records for one in seen.batches] == [None]


def test_bytes_that_the_dispatcher_refuses_are_no_batches() -> None:
    """Cut off anywhere, of an unknown API, or with a topic's id that nobody knows."""
    whole = _produce(9, PartitionBatch("t", 0, _batch()))
    for end in range(len(whole)):
        seen = request_seen(whole[:end], PEER, API_BY_KEY, {}, with_records=True)
        assert seen is None or not seen.batches or seen.batches[0].topic == "t"
    assert request_seen(b"\x7f\x00" + whole[2:], PEER, API_BY_KEY, {}, with_records=True) is None
    unknown = uuid.uuid4().bytes
    body = b"\x00\xff\xff\x00\x00\x03\xe8\x02" + unknown + b"\x02\x00\x00\x00\x00"
    batch = _batch()
    body += bytes((len(batch) + 1,)) + batch + b"\x00\x00\x00"
    frame = b"\x00\x00\x00\x0d\x00\x00\x00\x0c\xff\xff\x00" + body
    seen = request_seen(frame, PEER, API_BY_KEY, {}, with_records=False)
    assert seen is not None
    assert [one.topic for one in seen.batches] == [str(uuid.UUID(bytes=unknown))]
