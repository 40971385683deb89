"""Partitions, logs, records and answers as lines of text.

A batch is drawn as `[5-7 @2 7/0:3-5]`: offsets 5 to 7, written in leader epoch 2, by producer 7 in
its epoch 0 with the sequences 3 to 5. `x` is a record without a producer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from echoless.broker.metadata.node_data import LeaderAndIsr
from echoless.broker.partitions.partition import NO_LEADER, Partition
from echoless.protocol.dedup import ProducerEntry
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import BatchHeader, read_header
from tests.simulation.cluster import DATA_DIR
from tests.simulation.machine import Machine
from tests.support.raw_batches import split_log


def span(first: int, last: int) -> str:
    """`5-7`, or `5` where there is only one."""
    return f"{first}" if first == last else f"{first}-{last}"


def ids(brokers: Iterable[int]) -> str:
    """`1 2 3`, or `none`."""
    return " ".join(map(str, brokers)) or "none"


def batches(data: bytes) -> str:
    """All complete batches, in order."""
    return " ".join(_batch(read_header(stored.data)) for stored in split_log(data))


def _batch(header: BatchHeader) -> str:
    offsets = span(header.base_offset, header.last_offset)
    if header.producer_id < 0:
        writer = "x"
    else:
        sequences = span(header.base_sequence, header.last_sequence)
        writer = f"{header.producer_id}/{header.producer_epoch}:{sequences}"
    return f"[{offsets} @{header.partition_leader_epoch} {writer}]"


def state(found: LeaderAndIsr | None) -> str:
    """The content of the state node."""
    if found is None:
        return "no state yet"
    leader = "none" if found.leader == NO_LEADER else found.leader
    return f"leader {leader}, leader epoch {found.leader_epoch}, in sync {ids(sorted(found.isr))}"


def replica(machine: Machine, name: str, key: tuple[str, int]) -> str:
    """One replica: its role as it sees it itself, its offsets, its log."""
    logs = machine.disk.read_logs(DATA_DIR)
    drawn = batches(b"".join(data for _, data in logs.get(name, ())))
    broker = machine.broker
    partition = None if broker is None else broker.partitions.get(key)
    if partition is None:
        what = "down" if broker is None else "no replica"
        return f"  {machine.broker_id} {what:15} {drawn}".rstrip()
    is_paused = machine.process is not None and machine.process.is_paused
    role = _role(partition) + (", paused" if is_paused else "")
    log = partition.log
    start = f"from {log.log_start_offset} " if log.log_start_offset else ""
    offsets = f"{start}committed {partition.high_watermark} end {log.log_end_offset}"
    return f"  {machine.broker_id} {role:15} {offsets} {drawn}".rstrip()


def _role(partition: Partition) -> str:
    if partition.is_leader:
        return f"leads @{partition.leader_epoch}"
    if partition.leader_id == NO_LEADER:
        return "no role"
    return f"follows {partition.leader_id} @{partition.leader_epoch}"


def producers(partition: Partition) -> str:
    """The partition's producers, each with the batches in its window."""
    entries = sorted(partition.log.producers.items())
    return "; ".join(_producer(*entry) for entry in entries) or "none"


def _producer(producer_id: int, entry: ProducerEntry) -> str:
    window = " ".join(span(one.base_sequence, one.last_sequence) for one in entry.batches)
    return f"{producer_id}/{entry.producer_epoch}: {window}"


def produced(node: str, answer: Mapping[str, Any], record_count: int) -> str:
    """The outcome of one produce message."""
    error = answer["error"]
    if error["code"] != ErrorCode.NONE:
        return f"{node}: {error['name']}"
    base_offset = answer["base_offset"]
    offsets = span(base_offset, base_offset + record_count - 1)
    return f"{node}: {'a repeat of' if answer['duplicate'] else 'stored at'} {offsets}"
