"""Progress of the moves that `echoless topics reassign` shows: the bytes of each new replica beside its leader's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from time import sleep
from typing import Any, Final

import typer

from echoless.cli.cluster import ClusterConnections
from echoless.cli.output import counted, print_json, print_table
from echoless.cli.replica_sizes import HeldBytes, Place, bytes_text, held_bytes

_ASK_AGAIN_S: Final = 1.0


def moves_with_bytes(
    cluster: ClusterConnections,
    moving: Sequence[Mapping[str, Any]],
    said: set[str] | None = None,
) -> list[dict[str, Any]]:
    """Adds `leader_bytes` and `copies`: the bytes of each replica being added, and how many percent that is.

    The leader deletes old segments and compacts meanwhile, so a copy that is in sync may be a little larger or smaller.
    What a broker does not say is None; why is a line on standard error, unless it is one of `said`.
    """
    held = _held(cluster, moving, said)
    return [_with_bytes(one, held) for one in moving]


def _held(
    cluster: ClusterConnections, moving: Sequence[Mapping[str, Any]], said: set[str] | None
) -> dict[int, HeldBytes | None]:
    wanted: defaultdict[int, list[Place]] = defaultdict(list)
    for one in moving:
        for broker_id in {one["leader"], *one["adding"]}:
            wanted[broker_id].append((one["topic"], one["partition"]))
    live = cluster.broker_ids
    return {
        one: held_bytes(cluster, one, wanted[one], said) for one in sorted(wanted) if one in live
    }


def _with_bytes(moving: Mapping[str, Any], held: Mapping[int, HeldBytes | None]) -> dict[str, Any]:
    place = moving["topic"], moving["partition"]

    def size_on(broker_id: int) -> int | None:
        answered = held.get(broker_id)
        return None if answered is None else answered.replicas.get(place, 0)

    whole = size_on(moving["leader"])
    copies = [
        {"broker": one, "bytes": size_on(one), "percent": _percent(size_on(one), whole)}
        for one in moving["adding"]
    ]
    return {**moving, "leader_bytes": whole, "copies": copies}


def _percent(copied: int | None, whole: int | None) -> int | None:
    if copied is None or whole is None:
        return None
    return min(100, 100 * copied // whole) if whole else 100


def show_moves(moving: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Prints the moves with their bytes, one a row."""
    if as_json:
        print_json(list(moving))
        return
    columns = ("topic", "partition", "replicas", "in sync", "adding", "removing", "copied")
    shown = ("topic", "partition", "replicas", "isr", "adding", "removing")
    rows = [(*(one[name] for name in shown), _copied(one)) for one in moving]
    print_table(f"{counted(len(rows), 'partition')} being moved", columns, rows)


def _copied(moving: Mapping[str, Any]) -> str:
    """`4: 1.4 MiB of 5.6 MiB (25 %)` of each replica being added."""
    whole = bytes_text(moving["leader_bytes"])
    return ", ".join(
        f"{one['broker']}: {bytes_text(one['bytes'])} of {whole}"
        + ("" if one["percent"] is None else f" ({one['percent']} %)")
        for one in moving["copies"]
    )


def wait_for_moves(moves: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
    """Asks every second until nothing is being moved; says on standard error how far it is whenever that changes."""
    said = ""
    while moving := moves():
        if (now := _summary(moving)) != said:
            typer.echo(now, err=True)
            said = now
        sleep(_ASK_AGAIN_S)


def _summary(moving: Sequence[Mapping[str, Any]]) -> str:
    """All copies together; those whose bytes are not known are counted apart."""
    known = [
        (min(copy["bytes"], one["leader_bytes"]), one["leader_bytes"])
        for one in moving
        for copy in one["copies"]
        if copy["percent"] is not None
    ]
    copied, whole = (sum(column) for column in zip(*known, strict=True)) if known else (0, 0)
    text = f"{counted(len(moving), 'partition')} being moved"
    if known:
        text += (
            f": {bytes_text(copied)} of {bytes_text(whole)} copied ({_percent(copied, whole)} %)"
        )
    if unknown := sum(len(one["copies"]) for one in moving) - len(known):
        text += f", {counted(unknown, 'replica')} of unknown size"
    return text
