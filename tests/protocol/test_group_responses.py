"""The answers of JoinGroup and SyncGroup that are packed by hand, against kio: the same bytes in every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from echoless.broker.handlers import join_group, sync_group
from echoless.broker.handlers.throttle_time import with_throttle_time
from echoless.protocol.group_responses import encode_join_group_response, encode_sync_group_response
from echoless.protocol.registry import Api

CODES = st.sampled_from([0, 14, 16, 22, 25, 27, 79, 82])
texts = st.text(max_size=200)
int32 = st.integers(-(2**31), 2**31 - 1)
metadata = st.binary(max_size=300)
JOINED = {"error_code": 0, "generation_id": 7, "protocol_type": "consumer", "protocol_name": None}


def of_each_version(api: Api) -> Any:
    return pytest.mark.parametrize("version", range(api.version_min, api.version_max + 1))


@of_each_version(join_group.API)
@given(
    fields=st.fixed_dictionaries(
        {
            "error_code": CODES,
            "generation_id": int32,
            "protocol_type": st.none() | texts,
            "protocol_name": st.none() | texts,
            "leader": texts,
            "skip_assignment": st.booleans(),
            "member_id": texts,
            "members": st.lists(st.tuples(texts, st.none() | texts, metadata), max_size=4),
        }
    )
)
@example(
    fields={
        **JOINED,
        "leader": "a",
        "skip_assignment": True,
        "member_id": "a",
        "members": [("m" * 200, None, bytes(20_000))] * 200,
    }
)
def test_joined_members_are_packed_as_kio_packs_them(version: int, fields: Any) -> None:
    """Null for a protocol is an empty name before version 7."""
    name = fields["protocol_name"]
    rows = [
        {"member_id": member_id, "group_instance_id": instance_id, "metadata": packed}
        for member_id, instance_id, packed in fields["members"]
    ]
    by_kio = {**fields, "members": rows, "protocol_name": (name or "") if version < 7 else name}
    expected = join_group.API.encode_response(version, with_throttle_time(by_kio))
    assert encode_join_group_response(version, **fields) == expected


@of_each_version(sync_group.API)
@given(
    fields=st.fixed_dictionaries(
        {
            "error_code": CODES,
            "protocol_type": st.none() | texts,
            "protocol_name": st.none() | texts,
            "assignment": metadata,
        }
    )
)
def test_an_assignment_is_packed_as_kio_packs_it(version: int, fields: Any) -> None:
    """Type and name of the protocol are there from version 5 on."""
    expected = sync_group.API.encode_response(version, with_throttle_time(fields))
    assert encode_sync_group_response(version, **fields) == expected
