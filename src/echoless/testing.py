"""Tests of producers: the types of the pytest fixture `echoless`, and the fixture's broker without pytest.

    from echoless.testing import Echoless

    def test_orders(echoless: Echoless) -> None: ...

A name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from echoless import imported_on_use

if TYPE_CHECKING:
    from echoless.diagram import render_mermaid, render_svg, render_text
    from echoless.testkit.admin import Admin, AdminError
    from echoless.testkit.broker_container import BrokerContainer, container
    from echoless.testkit.broker_process import BrokerProcess, BrokerStartError
    from echoless.testkit.echoless import Echoless
    from echoless.testkit.exactly_once import Sent
    from echoless.testkit.faults import FaultRule, Faults
    from echoless.testkit.native import Native, NativeError
    from echoless.testkit.recorder import Event, Recorder
    from echoless.testkit.stored_records import StoredRecord
    from echoless.testkit.transactional_topic import TransactionalTopic

__all__ = [
    "Admin",
    "AdminError",
    "BrokerContainer",
    "BrokerProcess",
    "BrokerStartError",
    "Echoless",
    "Event",
    "FaultRule",
    "Faults",
    "Native",
    "NativeError",
    "Recorder",
    "Sent",
    "StoredRecord",
    "TransactionalTopic",
    "container",
    "render_mermaid",
    "render_svg",
    "render_text",
]

if not TYPE_CHECKING:  # see `echoless`
    __getattr__, __dir__ = imported_on_use(
        __name__,
        {
            "Admin": "testkit.admin",
            "AdminError": "testkit.admin",
            "BrokerContainer": "testkit.broker_container",
            "BrokerProcess": "testkit.broker_process",
            "BrokerStartError": "testkit.broker_process",
            "Echoless": "testkit.echoless",
            "Event": "testkit.recorder",
            "FaultRule": "testkit.faults",
            "Faults": "testkit.faults",
            "Native": "testkit.native",
            "NativeError": "testkit.native",
            "Recorder": "testkit.recorder",
            "Sent": "testkit.exactly_once",
            "StoredRecord": "testkit.stored_records",
            "TransactionalTopic": "testkit.transactional_topic",
            "container": "testkit.broker_container",
            "render_mermaid": "diagram",
            "render_svg": "diagram",
            "render_text": "diagram",
        },
    )
