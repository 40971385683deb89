"""Fixtures: a broker with an authorizer, on which nothing is allowed yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from echoless.broker.config.names import Authorizer
from echoless.broker.metadata.topic import NewTopic
from tests.support.acls import AclEditor
from tests.support.in_process import Running, in_process


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A broker with the topics `t`, `u` and `orders`."""
    async with in_process(tmp_path, authorizer=Authorizer.ACL) as running:
        for name in ("t", "u", "orders"):
            await running.broker.services.topics.create(NewTopic(name=name))
        yield running


@pytest.fixture
def acls(running: Running) -> AclEditor:
    return AclEditor(running.broker.access)
