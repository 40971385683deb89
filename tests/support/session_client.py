"""Fetch requests of a session (KIP-227), and what their answers hold."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tests.support.raw_batches import split_log
from tests.support.raw_client import RawConnection, message, nested

VERSION = 12
"""The last one that names topics."""
INT32_MAX = 2**31 - 1
Rows = Mapping[Any, Sequence[tuple[int, int]]]
"""Partition and offset, by topic."""
NOTHING: Mapping[Any, Any] = MappingProxyType({})


async def ask(
    kafka: RawConnection,
    session: tuple[int, int],
    rows: Rows = NOTHING,
    forget: Mapping[Any, Sequence[int]] = NOTHING,
    *,
    version: int = VERSION,
    **fields: Any,
) -> Any:
    """The response to one request of a session, given by its id and the epoch."""
    send(kafka, session, rows, forget, version=version, **fields)
    return await kafka.receive_response("fetch", version)


def send(
    kafka: RawConnection,
    session: tuple[int, int],
    rows: Rows = NOTHING,
    forget: Mapping[Any, Sequence[int]] = NOTHING,
    *,
    version: int = VERSION,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    row_bytes_max: int = INT32_MAX,
    **fields: Any,
) -> None:
    """Sends such a request; topics have ids from version 13 on."""
    key = "topic_id" if version >= 13 else "topic"
    topic, partition = (nested("fetch", version, name) for name in ("FetchTopic", "FetchPartition"))
    forgotten = nested("fetch", version, "ForgottenTopic")

    def row(index: int, offset: int) -> Any:
        return partition(partition=index, fetch_offset=offset, partition_max_bytes=row_bytes_max)

    kafka.send_request(
        message("fetch", version, "Request")(
            max_wait=datetime.timedelta(milliseconds=max_wait_ms),
            min_bytes=min_bytes,
            session_id=session[0],
            session_epoch=session[1],
            topics=tuple(
                topic(**{key: name}, partitions=tuple(row(*one) for one in wanted))
                for name, wanted in rows.items()
            ),
            forgotten_topics_data=tuple(
                forgotten(**{key: name}, partitions=tuple(indexes))
                for name, indexes in forget.items()
            ),
            **fields,
        )
    )


def found(response: Any) -> dict[tuple[Any, int], tuple[int, int, int, int]]:
    """Code, number of batches, high watermark and log start of each row, by topic and partition."""
    rows = [(topic, row) for topic in response.responses for row in topic.partitions]
    by_key = {
        (getattr(topic, "topic", None) or getattr(topic, "topic_id", None), row.partition_index): (
            int(row.error_code),
            len(split_log(row.records or b"")),
            row.high_watermark,
            row.log_start_offset,
        )
        for topic, row in rows
    }
    assert len(by_key) == len(rows)
    return by_key
