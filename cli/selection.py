"""Options that select decisions and faults by their batches."""

from __future__ import annotations

from typing import Annotated

import typer

from echoless.cli.completion import topic_names

ProducerFilter = Annotated[
    int | None, typer.Option("--producer-id", min=0, help="Only batches of this producer.")
]
TopicFilter = Annotated[
    str | None,
    typer.Option("--topic", help="Only batches for this topic.", autocompletion=topic_names),
]
PartitionFilter = Annotated[
    int | None, typer.Option("--partition", min=0, help="Only batches for this partition.")
]
