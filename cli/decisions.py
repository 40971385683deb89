"""`echoless decisions`: what the broker decided about each batch, as a table or as JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from echoless.cli.admin import admin_port
from echoless.cli.decision_table import print_growing_table
from echoless.cli.option_groups import grouped
from echoless.cli.options import AdminPort
from echoless.cli.selection import PartitionFilter, ProducerFilter, TopicFilter

if TYPE_CHECKING:
    from echoless.testkit.admin import Admin

_SHOWN_MAX: Final = 2000


@grouped
def decisions(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new ones.")] = False,
    last: Annotated[
        int, typer.Option("--last", "-n", min=0, max=_SHOWN_MAX, help="How many past ones.")
    ] = 20,
    producer_id: ProducerFilter = None,
    topic: TopicFilter = None,
    partition: PartitionFilter = None,
    *,
    admin: AdminPort,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line instead of a table.")
    ] = False,
) -> None:
    """Show each batch with its verdict, the reason and the window against which it was judged.

    Steps of transactions (begin, commit, markers, fences) and hits of fault rules are between them.
    """
    selection: dict[str, Any] = {"producer_id": producer_id, "topic": topic, "partition": partition}
    show = _print_lines if as_json else print_growing_table
    with admin_port(admin) as port:
        try:
            show(
                port.follow_decisions(n=last, **selection)
                if follow
                else _latest(port, last, selection)
            )
        except KeyboardInterrupt:
            return  # the way to end following


def _latest(port: Admin, last: int, selection: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Decisions and faults of the past, oldest first, as following would have shown them."""
    answer = port.get("/decisions", n=max(last, 1), **selection)
    events = [{"event": "decision", **one} for one in answer["decisions"]]
    events += [{"event": "fault", **one} for one in answer["faults"]]
    events += [{"event": "transaction", **one} for one in answer.get("transactions", [])]
    events.sort(key=lambda event: int(event["number"]))
    return events[len(events) - min(last, len(events)) :]


def _print_lines(events: Iterable[Mapping[str, Any]]) -> None:
    for event in events:
        sys.stdout.write(json.dumps(event, separators=(",", ":")) + "\n")
        sys.stdout.flush()
