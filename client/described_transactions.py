"""kio's DescribeTransactions answer, with the start of a transaction as the number that it is.

kio reads it as a time, and refuses -1: the start where there is no transaction. Annotations are types here, which kio looks at.
"""

from dataclasses import dataclass, field

from kio.schema.describe_transactions.v0 import response
from kio.static.primitive import i64


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState(response.TransactionState):
    """One id; its `transaction_start_time` is in milliseconds since 1970, or -1."""

    transaction_start_time: i64 = field(metadata={"kafka_type": "int64"})  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsResponse(response.DescribeTransactionsResponse):
    """Version 0, the only one."""

    transaction_states: tuple[TransactionState, ...]
