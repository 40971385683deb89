"""Ways to run a query that do not suit the sink as a data source, refused by name.

With `trigger(continuous=...)` Spark calls no Python in its tasks: nothing is stored while the offsets of the source
advance. Spark does not say how a query is run, but only its micro-batches have offsets in the checkpoint that are not
committed when the writer is made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from echoless.pipeline.exactly_once.errors import OptionError, SinkError
from echoless.pipeline.exactly_once.ledger_files import open_ledger_files
from echoless.pipeline.exactly_once.options import NEW_LEDGER
from echoless.pipeline.exactly_once.store_settings import NO_SETTINGS, StoreSettings

_OF_PIPELINE: Final = re.compile(r"(?P<flow>.+/_checkpoints/.+)/(?P<number>\d+)")
_ASYNCHRONOUS: Final = "asyncprogresstracking"
_REMEDY: Final = "use trigger(processingTime=...) or trigger(availableNow=True)"
_CONTINUOUS: Final = (
    "trigger(continuous=...) calls no Python data source in its tasks, and trigger(realTime=...) reports rows before "
    f"they are stored: the rows would be lost; {_REMEDY}"
)


def check_options(options: Mapping[str, str]) -> None:
    """Refuses asynchronous progress tracking. Raises `OptionError`."""
    for name, value in options.items():
        if name.lower().lstrip("_").startswith(_ASYNCHRONOUS) and value.lower() != "false":
            raise OptionError(
                f"option {name}: with asynchronous progress tracking Spark reruns batches that the sink has ended; "
                "leave it out"
            )


def check_checkpoint(checkpoint: str, settings: StoreSettings = NO_SETTINGS) -> None:
    """Refuses a query without micro-batches. Raises `OptionError`."""
    try:
        files = open_ledger_files(checkpoint, settings)
        offsets, commits = (_last(files.list(name)) for name in ("offsets", "commits"))
    except SinkError:
        return  # a checkpoint that the ledger's files cannot reach; its commits are checked
    if offsets <= commits:
        raise OptionError(_CONTINUOUS)


def check_not_refreshed(
    checkpoint: str, ledger: str, settings: StoreSettings = NO_SETTINGS
) -> None:
    """Refuses the checkpoint of a full refresh: its `ledger` is new, and one beside it has stored the same rows.

    A Declarative Pipeline has the checkpoints of a flow in numbered directories, and uses the last. Raises `OptionError`.
    """
    place = _OF_PIPELINE.fullmatch(checkpoint.rstrip("/"))
    if place is None:
        return
    try:
        files = open_ledger_files(place["flow"], settings)
        used = [
            int(one) for one in files.list("") if one.isdecimal() and files.list(f"{one}/{ledger}")
        ]
    except SinkError:
        return
    number = int(place["number"])
    if used and max(used) < number:
        raise OptionError(
            f"full refresh: {checkpoint} begins a new ledger, and the rows that {place['flow']}/{max(used)} has stored would be "
            f"stored again: a topic cannot be emptied. If that is meant, set {NEW_LEDGER}=true, or take another topic; "
            f"otherwise delete {checkpoint}, and run the pipeline without a full refresh"
        )


def check_reports(messages: Sequence[object]) -> None:
    """Refuses the commit of tasks that have not reported. Raises `SinkError`."""
    if any(message is None for message in messages):
        raise SinkError(_CONTINUOUS)


def _last(names: Sequence[str]) -> int:
    return max((int(name) for name in names if name.isdecimal()), default=-1)
