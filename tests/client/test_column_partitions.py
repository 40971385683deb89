"""Keys of an Arrow column go where they go one by one."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.client.batch import partition_of
from echoless.client.column_partitions import partitions_of

KEYS = st.lists(
    st.one_of(st.binary(max_size=70), st.integers(1020, 1030).map(lambda n: b"\xff\x01" * (n // 2)))
)


@given(KEYS, st.integers(1, 1000), st.integers(0, 3))
def test_partitions_are_those_of_single_keys(keys, partition_count, start):
    """Short keys and long ones, of every length modulo four, also in a slice."""
    found = partitions_of(pa.array(keys, pa.binary())[start:], partition_count)
    assert found.tolist() == [partition_of(key, partition_count) for key in keys[start:]]


def test_null_key_decides_nothing():
    """The same error as for a single record."""
    with pytest.raises(ValueError, match="partition"):
        partitions_of(pa.array([b"a", None]), 3)
