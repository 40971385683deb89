"""One group at the admin port, of either protocol."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from echoless.broker.admin import group_documents
from echoless.broker.admin.group_documents import group_document
from echoless.broker.admin.refusal import RefusalError
from echoless.coordinators.groups.answers import refusal
from echoless.coordinators.groups.consumer.requests import ConsumerDescribe
from echoless.coordinators.groups.requests import CommittedPartition as Row
from echoless.coordinators.groups.requests import (
    DescribeGroup,
    GroupRequest,
    OffsetCommit,
    OffsetFetch,
)
from echoless.protocol.consumer_assignment import assigned_partitions
from echoless.protocol.errors import ErrorCode
from tests.broker.admin.fake_broker import FakeBroker, FakeGroups
from tests.coordinators.groups.consumers import GROUP, ConsumerShell

LARGE = struct.pack(">hih", 1, 1, 6) + b"orders" + struct.pack(">i5ii", 5, *range(5), -1)


class PureGroups(FakeGroups):
    """Answers by a coordinator without a broker."""

    def __init__(self) -> None:
        super().__init__()
        self.shell = ConsumerShell(orders=2, gone=1)

    def ask(self, request: GroupRequest) -> Any:
        assert isinstance(request, DescribeGroup | ConsumerDescribe | OffsetFetch)
        return self.shell.ask(request)

    def topic_names(self, topic_ids: Collection[bytes]) -> Mapping[bytes, str]:
        known = {self.shell.topics.find(name).topic_id: name for name in self.shell.topics.names()}
        return {one: known[one] for one in topic_ids if one in known}


async def test_a_group_of_the_consumer_protocol_is_shown_with_its_members() -> None:
    """A topic that was deleted has no name, and is left out."""
    broker: Any = FakeBroker()
    broker.groups = groups = PureGroups()
    groups.shell.beat("m1", 0, topics=("gone", "orders"), instance_id="i")
    rows = (Row("orders", 0, 4),)
    groups.shell.ask(OffsetCommit(GROUP, 1, "m1", None, rows, knows_missing_groups=True))
    groups.shell.topics.delete("gone")
    found = await group_document(broker, GROUP, lambda _: True)
    assert (found["state"], found["protocol_type"]) == ("Stable", "consumer")
    assert found["protocol"] == "uniform"
    (member,) = found["members"]
    assert (member["member_id"], member["group_instance_id"]) == ("m1", "i")
    assert [one["partition"] for one in member["partitions"]] == [0, 1]
    lags = [(one["partition"], one["lag"], one["member_id"]) for one in found["partitions"]]
    assert lags == [(0, 5, "m1"), (1, None, "m1")]


async def test_no_more_partitions_are_shown_than_an_answer_has_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A member may be given an assignment of 225,000: it is not even read whole."""
    monkeypatch.setattr(group_documents, "PARTITIONS_MAX", 3)
    assert len(assigned_partitions(LARGE, 4)) == 4
    assert len(assigned_partitions(LARGE)) == 5
    broker: Any = FakeBroker()
    broker.groups = groups = PureGroups()
    groups.shell.topics.set("orders", 5)
    groups.shell.beat("m1", 0, topics=("orders",))
    found = await group_document(broker, GROUP, lambda _: True)
    (member,) = found["members"]
    assert len(member["partitions"]) == len(found["partitions"]) == 3
    assert not found["is_complete"]


async def test_a_group_that_is_not_coordinated_here_need_not_be_elsewhere() -> None:
    """A broker that stands alone answers so before its first group."""
    broker: Any = FakeBroker()
    broker.groups.ask = lambda request: refusal(request, ErrorCode.NOT_COORDINATOR)
    with pytest.raises(RefusalError, match=r"^this broker coordinates no group 'g'$"):
        await group_document(broker, "g", lambda _: True)
