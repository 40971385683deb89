"""One Echoless for all tests with real clients; they keep apart by topic names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.echoless import Echoless

PARTITIONS = 3


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Echoless]:
    """A broker that creates topics of three partitions when a client first names them."""
    echoless = Echoless(tmp_path_factory.mktemp("echoless"), {"num_partitions": str(PARTITIONS)})
    echoless.start()
    yield echoless
    echoless.kill()
