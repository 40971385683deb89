"""`echoless replay`: plays the batches of a recording to any broker, and compares what is decided about them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from echoless.cli.cluster import security_of
from echoless.cli.errors import CommandError
from echoless.cli.option_groups import grouped
from echoless.cli.options import BrokerOptions, Json
from echoless.cli.output import counted, print_json, print_table

if TYPE_CHECKING:
    from echoless.testkit.recording.player import PlayedBatch, Player
    from echoless.testkit.recording.steps import LeftOut, PlayableStep


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
    """
    from echoless.testkit.recording.file import RecordingError, read_events
    from echoless.testkit.recording.player import Player
    from echoless.testkit.recording.steps import LeftOut, steps_of

    left_out = LeftOut()
    try:
        steps = list(steps_of(read_events(file), left_out))
        if left_out.lost:
            raise CommandError(f"{file} lacks {counted(left_out.lost, 'event')}: record again")
        player = Player(
            broker.bootstrap_server,
            security_of(broker),
            keeps_ids=keep_producer_ids,
            keeps_times=keep_times,
        )
        played = asyncio.run(_play(player, steps))
    except (RecordingError, ValueError) as error:
        raise CommandError(str(error)) from error
    if as_json:
        print_json([_document(one) for one in played])
    else:
        _print(played)
    _report(played, player.failures, left_out)
    if any(one.differs for one in played):
        raise typer.Exit(1)


async def _play(player: Player, steps: Sequence[PlayableStep]) -> list[PlayedBatch]:
    try:
        for name in await player.create_topics(steps):
            typer.echo(f"created {name}", err=True)
        return [played async for played in player.play(steps)]
    finally:
        await player.close()


def _print(played: Sequence[PlayedBatch]) -> None:
    rows = [
        (
            f"{one.batch.topic}-{one.batch.partition}",
            *_numbers(one),
            one.batch.outcome,
            one.outcome,
            "differs" if one.differs else "",
            one.message or "",
        )
        for one in played
    ]
    columns = "partition", "producer", "epoch", "sequences", "recorded", "now", "", "message"
    print_table("1 batch" if len(played) == 1 else f"{len(played)} batches", columns, rows)


def _numbers(one: PlayedBatch) -> tuple[int, int, str]:
    producer_id, epoch = one.batch.producer
    fields = one.batch.fields
    if producer_id < 0:
        return producer_id, epoch, "-"
    return producer_id, epoch, f"{fields['base_sequence']}-{fields['last_sequence']}"


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


def _report(played: Sequence[PlayedBatch], failures: Sequence[str], left_out: LeftOut) -> None:
    differing = sum(one.differs for one in played)
    typer.echo(f"{len(played) - differing} as recorded, {differing} not", err=True)
    for failure in failures:
        typer.echo(f"refused: {failure}", err=True)
    if left_out.undecided:
        typer.echo(f"left out, since no broker has judged them: {left_out.undecided}", err=True)
    if left_out.offsets:
        typer.echo(f"left out, positions of groups: {left_out.offsets}", err=True)
