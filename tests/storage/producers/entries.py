"""Hypothesis strategies: any entry that the wire formats allow."""

from __future__ import annotations

from hypothesis import strategies as st

from echoless.protocol.dedup import BatchMetadata, ProducerEntry

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

batches = st.builds(
    BatchMetadata,
    st.integers(-1, INT32_MAX),
    st.integers(0, INT64_MAX),
    st.integers(0, INT32_MAX),
    st.integers(-1, INT64_MAX),
    st.none() | st.integers(0, 2**32 - 1),
)
entries = st.builds(
    ProducerEntry,
    st.integers(-1, 2**15 - 1),
    st.integers(-1, INT32_MAX),
    st.integers(0, 1000),
    st.lists(batches, max_size=9).map(tuple),
)
producer_ids = st.integers(0, 40) | st.sampled_from([10**18, INT64_MAX - 2**52])
"""None of them leased: those would have an order of their own."""
