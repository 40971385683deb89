"""Kafka's own consumers: killed, they go on from what they had committed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.applications.application import Application
from tests.applications.conftest import SESSION_MS

_HALF = 60
_PARTITIONS = 3

pytestmark = [pytest.mark.clients, pytest.mark.slow]


def test_the_console_consumer_goes_on_where_it_was_killed(
    tmp_path: Path,
    bootstrap: str,
    create: Callable[..., None],
    write: Callable[..., None],
    committed: Callable[..., list[int]],
) -> None:
    """Killed when everything so far was printed and committed, its successor prints the rest and nothing else."""
    create("console", _PARTITIONS)
    texts = [f"line {number}" for number in range(2 * _HALF)]
    write("console", texts[:_HALF], _PARTITIONS)
    console = Application(
        tmp_path,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", "console", "--group", "console"),
        *("--from-beginning", "--consumer-property", "auto.commit.interval.ms=100"),
        *("--consumer-property", f"session.timeout.ms={SESSION_MS}"),
    )
    console.start()
    console.wait_until(lambda: len(console.lines) >= _HALF, "the first half is printed")
    share = _HALF // _PARTITIONS
    console.wait_until(
        lambda: committed("console", "console", _PARTITIONS) == [share] * _PARTITIONS,
        "the first half is committed",
    )
    console.kill()
    write("console", texts[_HALF:], _PARTITIONS)
    console.start()
    console.wait_until(lambda: len(console.lines) >= 2 * _HALF, "the second half is printed")
    console.kill()
    assert sorted(console.lines[:_HALF]) == sorted(texts[:_HALF])
    assert sorted(console.lines[_HALF:]) == sorted(texts[_HALF:])


def test_the_verifiable_consumer_hands_its_partitions_over(
    tmp_path: Path, bootstrap: str, create: Callable[..., None], write: Callable[..., None]
) -> None:
    """One of two is killed while records flow: the other takes its partitions, and every record is read."""
    create("verifiable", _PARTITIONS)

    def consumer(name: str) -> Application:
        return Application(
            tmp_path / name,
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--bootstrap-server", bootstrap, "--topic", "verifiable", "--verbose"),
            *("--group-id", "verifiable", "--session-timeout", str(SESSION_MS)),
            *("--reset-policy", "earliest"),
        )

    first, second = consumer("first"), consumer("second")
    first.start()
    second.start()
    for one in (first, second):
        one.wait_until(lambda one=one: bool(_partitions(one)), "it has partitions")
    write("verifiable", [str(number) for number in range(_HALF)], _PARTITIONS)
    for one in (first, second):
        one.wait_until(lambda one=one: bool(_events(one, "record_data")), "it has records")
    first.kill()
    write("verifiable", [str(number) for number in range(_HALF, 2 * _HALF)], _PARTITIONS)
    wanted = {str(number) for number in range(2 * _HALF)}
    second.wait_until(
        lambda: (
            {event["value"] for one in (first, second) for event in _events(one, "record_data")}
            == wanted
        ),
        "every record is read",
    )
    second.kill()
    commits = _events(second, "offsets_committed")
    assert all(commit["success"] for commit in commits), commits
    assert _partitions(second) == set(range(_PARTITIONS))


def _events(application: Application, name: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in application.lines if line.startswith("{")]
    return [event for event in found if event["name"] == name]


def _partitions(application: Application) -> set[int]:
    """Read the partitions of its newest assignment."""
    assigned = _events(application, "partitions_assigned")
    return {one["partition"] for one in assigned[-1]["partitions"]} if assigned else set()  # type: ignore[attr-defined]
