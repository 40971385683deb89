"""`echoless strays`: logs set aside by the broker at start, or by an operator.

The broker has to be stopped: the commands take the data directory's lock.
"""

from __future__ import annotations

import time
import uuid
from typing import Annotated, Any

import typer

from echoless.cli.data_lock import data_directory, parse_partition
from echoless.cli.errors import CommandError
from echoless.cli.options import Json
from echoless.cli.output import print_json, print_table, time_text
from echoless.storage import paths, strays
from echoless.storage.file_system import StorageError
from echoless.storage.partition_metadata import read_topic_id
from echoless.storage.properties_file import decode_uuid, encode_uuid
from echoless.storage.strays import Stray

app = typer.Typer(no_args_is_help=True, help="Logs that were set aside, with the broker stopped.")

DataDir = Annotated[str, typer.Argument(help="The data directory of a stopped broker.")]
Name = Annotated[str, typer.Argument(metavar="STRAY", help="A name that `strays list` shows.")]


@app.command("list")
def list_(data_dir: DataDir, as_json: Json = False) -> None:
    """List the logs that were set aside, and why."""
    problems: list[StorageError] = []
    with data_directory(data_dir, "echoless strays list") as (fs, path):
        found = strays.find_strays(fs, path, problems.append)
    rows = [_row(stray) for stray in found]
    if as_json:
        print_json({"strays": rows, "problems": [str(problem) for problem in problems]})
        return
    columns = ["name", "topic id", "set aside", "records", "bytes", "reason"]
    print_table(f"{path}: {len(rows)} set aside", columns, [list(row.values()) for row in rows])
    if problems:
        raise CommandError("; ".join(map(str, problems)))


@app.command()
def restore(
    data_dir: DataDir,
    name: Name,
    as_: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="TOPIC-PARTITION", help="A partition other than its former one."
        ),
    ] = None,
    topic_id: Annotated[
        str | None,
        typer.Option("--topic-id", metavar="ID", help="The id of its topic, if it has changed."),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Set aside what is in its place, and take its topic id."),
    ] = False,
) -> None:
    """Put a log back; the next start scans it and serves it."""
    with data_directory(data_dir, "echoless strays restore") as (fs, path):
        stray = strays.read_stray(fs, path, name)
        key = stray.key if as_ is None else parse_partition(as_)
        place = paths.partition_directory(path, *key)
        chosen = _topic_id(topic_id) or stray.topic_id
        if fs.exists(place):
            if not replace:
                raise CommandError(f"{place} is there already; --replace sets it aside")
            chosen = _topic_id(topic_id) or read_topic_id(fs, place)
            reason = f"replaced by {name}"
            replaced = strays.set_aside_unopened(fs, path, key, reason, _now_ms())
            typer.echo(f"set aside {key[0]}-{key[1]} as {replaced.name}")
        if chosen is None:
            raise CommandError(f"{name} has lost the id of its topic; give it with --topic-id")
        strays.restore(fs, path, stray, key=key, topic_id=chosen)
    typer.echo(f"restored {name} as {key[0]}-{key[1]}, topic id {encode_uuid(chosen)}")


@app.command("set-aside")
def set_aside(
    data_dir: DataDir,
    partition: Annotated[str, typer.Argument(metavar="TOPIC-PARTITION", help="Such as orders-0.")],
) -> None:
    """Set aside a partition's log that keeps the broker from starting."""
    with data_directory(data_dir, "echoless strays set-aside") as (fs, path):
        key = parse_partition(partition)
        stray = strays.set_aside_unopened(fs, path, key, "by command", _now_ms())
    typer.echo(f"set aside {partition} as {stray.name}")


@app.command()
def delete(data_dir: DataDir, name: Name) -> None:
    """Delete a log that was set aside, for good."""
    with data_directory(data_dir, "echoless strays delete") as (fs, path):
        stray = strays.read_stray(fs, path, name)
        strays.delete(fs, path, stray)
    typer.echo(f"deleted {name}: {stray.size_bytes} bytes")


def _row(stray: Stray) -> dict[str, Any]:
    return {
        "name": stray.name,
        "topic_id": None if stray.topic_id is None else encode_uuid(stray.topic_id),
        "set_aside": time_text(stray.set_aside_ms),
        "records": None if stray.records < 0 else stray.records,
        "bytes": stray.size_bytes,
        "reason": stray.reason,
    }


def _topic_id(text: str | None) -> uuid.UUID | None:
    return None if text is None else decode_uuid("--topic-id", text)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
