"""`echoless decisions` and `echoless trace`, of a broker in this process and of files."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from echoless.broker.admin.server import AdminServer
from echoless.broker.config.values import Address
from echoless.broker.network.server import bind, bound_address
from tests.broker.admin.decider import Decider
from tests.broker.admin.fake_broker import FakeBroker
from tests.cli.command import Command
from tests.diagram.recording import A, B, Recording


class _AdminThread:
    """The admin port of a fake broker, on a separate event loop."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.decider = Decider(self.broker)
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._is_serving = False

    def start(self) -> None:
        self._thread.start()
        listener = bind("admin_listen", Address("127.0.0.1", 0))
        self.address = str(bound_address(listener))
        self._server = AdminServer(listener, self.broker)
        self.run(self._server.start)
        self._is_serving = True

    def run(self, call: Callable[..., object], *arguments: object) -> None:
        """Calls it between two steps of the loop, as the broker itself would."""

        async def on_the_loop() -> None:
            call(*arguments)

        asyncio.run_coroutine_threadsafe(on_the_loop(), self._loop).result()

    def stop_serving(self) -> None:
        """Stops like a broker that leaves; once."""
        if self._is_serving:
            self._is_serving = False
            asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()

    def stop(self) -> None:
        self.stop_serving()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def admin() -> Iterator[_AdminThread]:
    running = _AdminThread()
    running.start()
    yield running
    running.stop()


def test_table_shows_who_what_and_why(echoless: Command, admin: _AdminThread) -> None:
    """A row for each decision and fault, oldest first, with window and reason."""
    admin.run(admin.decider.append)
    admin.run(admin.decider.hit)
    admin.run(admin.decider.refuse)
    ran = echoless("decisions", "--admin", admin.address)
    header, appended, fault, refused = ran.out.splitlines()
    assert "verdict" in header
    assert "billing #1" in appended
    assert "orders-0" in appended
    assert "drop response (lose-acks) produce" in fault
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER: sequence 9 does not follow 1" in refused
    assert "User:" not in ran.out, "no one has authenticated"
    admin.run(lambda: admin.decider.append(principal="User:alice"))
    assert "User:alice" in echoless("decisions", "--last", 1, "--admin", admin.address).out


def test_no_line_of_a_file_ends_with_blanks(echoless: Command, admin: _AdminThread) -> None:
    """As wide as it needs to be, where there is no terminal."""
    admin.run(admin.decider.append)
    shown = echoless("decisions", "--admin", admin.address).out
    assert shown.count("\n") == 2
    assert not any(line.endswith(" ") for line in shown.splitlines())


def test_on_a_narrow_terminal_a_row_has_two_lines(
    echoless: Command, admin: _AdminThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line is longer than the terminal."""
    from echoless.cli import decision_table

    narrow = functools.partial(Console, width=72, markup=False, highlight=False)
    monkeypatch.setattr(decision_table, "console", narrow)
    admin.run(admin.decider.append)
    admin.run(admin.decider.refuse)
    head, *rows = echoless("decisions", "--admin", admin.address).out.splitlines()
    assert head.split() == ["time", "(UTC)", "client", "partition", "sequences", "verdict"]
    assert len(rows) == 5  # the reason is folded
    assert max(map(len, rows)) <= 72
    assert rows[0].split()[-1] == "append"
    assert rows[1].split()[:4] == ["producer", "7:2", "offset", "4"]
    assert "sequence 9" in rows[3]


def test_json_lines_are_for_programs(echoless: Command, admin: _AdminThread) -> None:
    """One object a line; filters and --last narrow them."""
    for producer_id in (7, 8, 8):
        admin.run(admin.decider.append, producer_id)
    ran = echoless("decisions", "--admin", admin.address, "--json", "--producer-id", 8, "-n", 1)
    (event,) = map(json.loads, ran.out.splitlines())
    assert (event["event"], event["number"], event["producer_id"]) == ("decision", 3, 8)
    assert echoless("decisions", "--admin", admin.address, "--json", "-n", 0).out == ""
    nothing = echoless("decisions", "--admin", admin.address, "--json", "--partition", 5)
    assert nothing.out == ""


@contextmanager
def _refusing_at_last(admin: _AdminThread) -> Iterator[None]:
    """Refuses a batch once the decisions are followed, and stops serving then."""

    def decide_and_stop() -> None:
        while not admin.broker.decisions.is_followed:
            pass
        admin.run(admin.decider.refuse)
        admin.stop_serving()

    meanwhile = threading.Thread(target=decide_and_stop)
    meanwhile.start()
    yield
    meanwhile.join()


def test_following_ends_with_the_broker(echoless: Command, admin: _AdminThread) -> None:
    """Past events come first, then new ones, until the broker leaves."""
    admin.run(admin.decider.append)
    with _refusing_at_last(admin):
        ran = echoless("decisions", "--admin", admin.address, "--follow", "--json")
    assert [json.loads(line)["decision"] for line in ran.out.splitlines()] == ["append", "reject"]


def test_trace_draws_what_a_broker_remembers(
    echoless: Command, admin: _AdminThread, tmp_path: Path
) -> None:
    """A picture, Mermaid text in a fence, and the events to draw them again."""
    admin.run(admin.decider.append)
    svg, mermaid, record = (tmp_path / name for name in ("run.svg", "run.md", "run.jsonl"))
    ran = echoless(
        *("trace", "--admin", admin.address, "--title", "A run"),
        *("--svg", svg, "--mermaid", mermaid, "--record", record),
    )
    assert (ran.code, ran.out) == (0, "")
    assert '<title id="title">A run</title>' in svg.read_text()
    assert mermaid.read_text().startswith("```mermaid\nsequenceDiagram\n")
    assert echoless("trace", "--admin", admin.address, "--json").out == record.read_text()
    again = echoless("trace", record)
    assert f"```mermaid\n{again.out}```\n" == mermaid.read_text()


def test_trace_follows_until_the_broker_leaves(echoless: Command, admin: _AdminThread) -> None:
    """It says that it waits; what was before is left out unless asked for."""
    admin.run(admin.decider.append)
    with _refusing_at_last(admin):
        ran = echoless("trace", "--admin", admin.address, "--follow")
    assert ran.err == "recording; Ctrl-C ends it\n"
    assert "refused" in ran.out
    assert "appended" not in ran.out


def test_trace_of_a_file_can_be_narrowed(echoless: Command, tmp_path: Path) -> None:
    """The filters hold for recorded runs as for brokers."""
    recording = Recording()
    recording.append(A)
    recording.append(B, topic="bills")
    recording.hit("freeze", api="")
    file = tmp_path / "run.jsonl"
    file.write_text("".join(json.dumps(event) + "\n" for event in recording.events))
    drawn = echoless("trace", file, "--topic", "bills").out
    assert "121-124" in drawn
    assert "frozen" in drawn
    assert "114-120" not in drawn


def test_mistakes_are_one_line(echoless: Command, tmp_path: Path) -> None:
    """Anything that cannot be read, reached or drawn is reported by name."""
    missing, wrong, empty = (tmp_path / name for name in ("missing", "wrong", "empty"))
    wrong.write_text('{"event": "note", "text": "x"}\nnonsense\n')
    empty.write_text("")
    for arguments, message in (
        (("trace", missing), f"{missing}: "),
        (("trace", wrong), f"{wrong}, line 2: "),
        (("trace", empty), "nothing was decided: there is nothing to draw"),
        (("decisions", "--admin", "nowhere"), "--admin: takes [https://]HOST:PORT, not 'nowhere'"),
        (("decisions", "--admin", "127.0.0.1:1"), "http://127.0.0.1:1/decisions?n=20: "),
        (("trace", "--admin", "127.0.0.1:1"), "http://127.0.0.1:1/decisions?n=200&follow=true: "),
    ):
        ran = echoless(*arguments)
        assert ran.code == 1
        assert ran.err.startswith("echoless: ")
        assert message in ran.err
        assert ran.err.count("\n") == 1
