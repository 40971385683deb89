"""`echoless replay`: plays the batches of a recording to any broker, and compares what is decided about them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from echoless.cli.cluster import security_of
from echoless.cli.errors import CommandError
from echoless.cli.option_groups import grouped
from echoless.cli.options import BrokerOptions, Json
from echoless.cli.output import counted, print_table

if TYPE_CHECKING:
    from echoless.testkit.recording.player import PlayedBatch, Player
    from echoless.testkit.recording.steps import LeftOut, Recording

SHOWN_MAX: Final = 1000
_COLUMNS: Final = ("partition", "producer", "epoch", "sequences", "recorded", "now", "", "message")


@grouped
def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="Written by echoless record.")],
    *,
    keep_producer_ids: Annotated[
        bool,
        typer.Option(
            "--keep-producer-ids",
            help="Send idempotent batches under the ids of the recording, not under new ones.",
        ),
    ] = False,
    keep_times: Annotated[
        bool, typer.Option("--keep-times", help="Wait between batches as long as was waited.")
    ] = False,
    as_json: Json = False,
    broker: BrokerOptions,
) -> None:
    """Play the batches of a recording to any broker, with their numbers; exit with 1 if one is decided otherwise.

    They are sent one after the other, in the order in which they were received. Topics that are missing are created.
    A transaction that is refused is a difference, too.
    """
    from echoless.testkit.recording.file import RecordingError, read_events
    from echoless.testkit.recording.player import Player
    from echoless.testkit.recording.steps import Recording

    shown = _JsonRows() if as_json else _Table()
    try:
        recording = Recording(partial(read_events, file))
        left_out = recording.left_out
        if left_out.lost:
            raise CommandError(f"{file} lacks {counted(left_out.lost, 'event')}: record again")
        player = Player(
            broker.bootstrap_server,
            security_of(broker),
            keeps_ids=keep_producer_ids,
            keeps_times=keep_times,
        )
        try:
            asyncio.run(_play(player, recording, shown))
        except BaseException:
            if shown.count:  # what was played has been decided, and its array is open
                shown.end()
            raise
    except (RecordingError, ValueError) as error:
        raise CommandError(str(error)) from error
    shown.end()
    _report(shown, player.failures, left_out)
    if shown.differing or player.failures:
        raise typer.Exit(1)


async def _play(player: Player, recording: Recording, shown: _Shown) -> None:
    try:
        for name in await player.create_topics(recording.partitions):
            typer.echo(f"created {name}", err=True)
        async for played in player.play(recording.steps()):
            shown.add(played)
    finally:
        await player.close()


class _Shown:
    """Batches as they are played: counted, and shown."""

    def __init__(self) -> None:
        self.count = 0
        self.differing = 0

    def add(self, one: PlayedBatch) -> None:
        """Takes the next batch."""
        self.count += 1
        self.differing += one.differs

    def end(self) -> None:
        """Shows what was not shown yet."""


class _Table(_Shown):
    """A table of all batches; if they are more than `SHOWN_MAX`, of the first of those that differ."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[tuple[bool, tuple[Any, ...]]] = []

    def add(self, one: PlayedBatch) -> None:
        super().add(one)
        if self.count <= SHOWN_MAX or (one.differs and self.differing <= SHOWN_MAX):
            self._rows.append((one.differs, _row(one)))

    def end(self) -> None:
        if self.count <= SHOWN_MAX:
            title, rows = "1 batch" if self.count == 1 else f"{self.count} batches", self._rows
        else:
            rows = [one for one in self._rows if one[0]][:SHOWN_MAX]
            title = f"{self.count:,} batches, of which {len(rows) or 'none'} differ"
            if len(rows) < self.differing:
                title += f", and {self.differing - len(rows):,} more"
        print_table(title, _COLUMNS, (row for _, row in rows))


class _JsonRows(_Shown):
    """A JSON array, a line for each batch."""

    def add(self, one: PlayedBatch) -> None:
        sys.stdout.write(("[" if self.count == 0 else ",") + "\n" + json.dumps(_document(one)))
        super().add(one)

    def end(self) -> None:
        sys.stdout.write(("[" if self.count == 0 else "") + "\n]\n")


def _row(one: PlayedBatch) -> tuple[Any, ...]:
    producer_id, epoch = one.batch.producer
    fields = one.batch.fields
    sequences = f"{fields['base_sequence']}-{fields['last_sequence']}" if producer_id >= 0 else "-"
    return (
        *(f"{one.batch.topic}-{one.batch.partition}", producer_id, epoch, sequences),
        *(one.batch.outcome, one.outcome, "differs" if one.differs else "", one.message or ""),
    )


def _document(one: PlayedBatch) -> dict[str, Any]:
    fields = one.batch.fields
    return {
        "topic": one.batch.topic,
        "partition": one.batch.partition,
        "recorded_producer_id": fields["producer_id"],
        "recorded_producer_epoch": fields["producer_epoch"],
        "producer_id": one.producer.producer_id,
        "producer_epoch": one.producer.producer_epoch,
        "base_sequence": fields["base_sequence"],
        "last_sequence": fields["last_sequence"],
        "recorded": one.batch.outcome,
        "now": one.outcome,
        "base_offset": one.base_offset,
        "differs": one.differs,
        "message": one.message,
    }


def _report(shown: _Shown, failures: Sequence[str], left_out: LeftOut) -> None:
    typer.echo(f"{shown.count - shown.differing} as recorded, {shown.differing} not", err=True)
    for failure in failures:
        typer.echo(f"refused: {failure}", err=True)
    if left_out.undecided:
        typer.echo(f"left out, since no broker has judged them: {left_out.undecided}", err=True)
    if left_out.cut:
        typer.echo(f"left out, requests of too many batches to record: {left_out.cut}", err=True)
    if left_out.offsets:
        typer.echo(f"left out, positions of groups: {left_out.offsets}", err=True)
