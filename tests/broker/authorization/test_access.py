"""Remembered rights of clients: bounded, and never more than the ACLs say."""

from __future__ import annotations

import pytest

from echoless.broker.authorization import access as access_module
from echoless.broker.authorization.access import NAME_LENGTH_MAX, Access
from echoless.broker.network.request import Peer
from echoless.protocol.acl import AclOperation, ResourceType
from tests.support.acls import AclEditor
from tests.support.in_process import Running

ALICE = "User:alice"


def remembered(access: Access) -> int:
    return sum(len(names) for one in access._rights.values() for names in one._allowed.values())


async def test_names_of_all_clients_together_are_bounded(
    running: Running, acls: AclEditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client asks for whatever names it likes, from as many addresses as it has; the answers stay right."""
    monkeypatch.setattr(access_module, "REMEMBERED_BY_ALL_MAX", 100)
    await acls.allow(AclOperation.READ, "t", principal=ALICE)
    access = running.broker.access
    assert access is not None
    peers = [Peer(number, f"10.0.0.{number}:1", principal=ALICE) for number in range(20)]
    for number in range(50):
        for peer in peers:
            rights = access.rights(peer)
            assert not rights.may(AclOperation.READ, ResourceType.TOPIC, f"none-{number}")
            assert rights.may(AclOperation.READ, ResourceType.TOPIC, "t")
            assert remembered(access) <= 100
    await acls.revoke(AclOperation.READ, "t", principal=ALICE)
    assert not any(
        access.rights(one).may(AclOperation.READ, ResourceType.TOPIC, "t") for one in peers
    )


async def test_long_names_are_not_remembered(running: Running) -> None:
    """No topic has them."""
    access = running.broker.access
    assert access is not None
    rights = access.rights(peer := Peer(1, "10.0.0.1:1", principal=ALICE))
    for length in (NAME_LENGTH_MAX, NAME_LENGTH_MAX + 1):
        assert not rights.may(AclOperation.READ, ResourceType.TOPIC, "x" * length)
    assert remembered(access) == 1
    assert peer.rights is rights
