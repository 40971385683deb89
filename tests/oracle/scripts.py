"""The scripts by name."""

from __future__ import annotations

from typing import Any, Final

from tests.oracle.consumers.script import ConsumersScript
from tests.oracle.groups.script import GroupsScript
from tests.oracle.producers.script import ProducersScript
from tests.oracle.script import Script
from tests.oracle.sessions.script import SessionsScript
from tests.oracle.transactions.script import TransactionsOf4Script, TransactionsScript

SCRIPTS: Final[dict[str, Script[Any]]] = {
    script.name: script
    for script in (
        ProducersScript(),
        GroupsScript(),
        ConsumersScript(),
        SessionsScript(),
        TransactionsScript(),
        TransactionsOf4Script(),
    )
}
