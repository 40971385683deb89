"""Transactional ids near the end of their epochs: 32,000 transactions that need not be run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Producer

from echoless.protocol.record_batch import leader_stamp, read_header, walk
from echoless.protocol.records import Record, build_batch, read_records
from echoless.protocol.state_records.transaction_records import (
    TransactionValue,
    read_transaction_key,
    read_transaction_value,
    write_transaction_key,
    write_transaction_value,
)
from tests.support.echoless import Echoless

_WITHIN_S = 30.0


def age(broker: Echoless, names: Iterable[str], epoch: int) -> None:
    """Gives the epoch to ids, new ones or such without an open transaction; the broker is killed, and started again."""
    wanted = set(names)
    for name in wanted:
        Producer(
            {"bootstrap.servers": broker.kafka_address, "transactional.id": name, "log_level": 0}
        ).init_transactions(_WITHIN_S)
    broker.kill()
    for path in broker.data_dir.glob("__transaction_state-*/*.log"):
        for name, value in _newest(path).items():
            if name in wanted:
                _append(path, name, value._replace(producer_epoch=epoch, last_epoch=-1))
                wanted.remove(name)
    assert not wanted, wanted
    broker.start()


def values(broker: Echoless) -> dict[str, TransactionValue]:
    """Read what is stored of each id from the files of its broker."""
    found: dict[str, TransactionValue] = {}
    for path in broker.data_dir.glob("__transaction_state-*/*.log"):
        found.update(_newest(path))
    return found


def _newest(path: Path) -> dict[str, TransactionValue]:
    log, found = path.read_bytes(), dict[str, TransactionValue]()
    for position, header in walk(log):
        for record in read_records(log[position : position + header.size]):
            assert record.key is not None
            assert record.value is not None
            found[str(read_transaction_key(record.key))] = read_transaction_value(record.value)
    return found


def _append(path: Path, name: str, value: TransactionValue) -> None:
    """Adds the record behind all others, as the leader of the last one would."""
    *_, (_, last) = walk(path.read_bytes())
    key, packed = write_transaction_key(name), write_transaction_value(value)
    record = Record(0, last.max_timestamp, key, packed)
    batch = build_batch([record], base_offset=last.next_offset)
    stamp = leader_stamp(read_header(batch), last.next_offset, last.partition_leader_epoch)
    with path.open("ab") as segment:
        segment.write(stamp + batch[len(stamp) :])
