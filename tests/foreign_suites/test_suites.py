"""The output of a foreign suite is read, and held against the page that lists the tests it misses."""

from __future__ import annotations

import pytest

from tests.foreign_suites.suite import PAGE, missed, outcomes, surprises
from tests.foreign_suites.suites import KAFKA_GO, KAFKA_PYTHON, SUITES

_PYTEST = """\
=========================== short test summary info ============================
PASSED test/integration/test_consumer_integration.py::test_consumer
PASSED test/integration/test_producer_integration.py::test_end_to_end[None]
SKIPPED [3] test/integration/test_sasl_integration.py:46: Testing on external Kafka Broker
ERROR test/integration/test_ssl_integration.py::TestSSLConnection::test_ssl_handshake
FAILED test/integration/test_admin_integration.py::test_create_partitions - kafka.errors
"""
_GO = """\
--- PASS: TestClient (0.05s)
--- FAIL: TestConn (0.00s)
    --- SKIP: TestConn/nettest (0.00s)
    --- FAIL: TestConn/test_delete_topics (0.10s)
"""


def test_the_outcomes_of_pytest_are_read() -> None:
    """From the summary, with and without a reason."""
    assert outcomes(KAFKA_PYTHON, _PYTEST) == {
        "test_consumer_integration.py::test_consumer": "passed",
        "test_producer_integration.py::test_end_to_end[None]": "passed",
        "test_sasl_integration.py:46": "skipped",
        "test_ssl_integration.py::TestSSLConnection::test_ssl_handshake": "failed",
        "test_admin_integration.py::test_create_partitions": "failed",
    }


def test_the_outcomes_of_go_are_read() -> None:
    """Those of a test's parts, too."""
    assert outcomes(KAFKA_GO, _GO) == {
        "TestClient": "passed",
        "TestConn": "failed",
        "TestConn/nettest": "skipped",
        "TestConn/test_delete_topics": "failed",
    }


def test_surprises_are_failures_and_passes_that_the_page_does_not_know() -> None:
    """A test that is listed and no longer there is one, too."""
    found = {"a": "failed", "b": "failed", "c": "passed", "d": "skipped"}
    assert surprises(found, {"b": "why", "d": "why"}) == ["a fails, and is not listed"]
    assert surprises({"b": "failed"}, {"b": "why"}) == []
    assert len(surprises(found, {"a": "", "b": "", "c": "", "e": ""})) == 2


@pytest.mark.parametrize("name", SUITES)
def test_the_page_lists_each_suite(name: str) -> None:
    """With its version, and a reason for each test that is missed."""
    assert f"| {name} {SUITES[name].version} |" in PAGE.read_text()
    assert missed(name)
    assert all(missed(name).values())
