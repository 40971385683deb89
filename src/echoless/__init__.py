"""Producers and copiers that have each record stored once, in Echoless and in Apache Kafka.

`echoless.spark` has the sink and the reader for Spark, `echoless.testing` what a test of a producer needs. What is
public is listed in `docs/api.md`. A name is imported when it is first used: `import echoless` loads no other module.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from echoless.client.acknowledgements import (
        AcknowledgedBatch,
        Acknowledgement,
        Acknowledgements,
    )
    from echoless.client.async_producer import AsyncProducer, RecordDelivery
    from echoless.client.batch import Records, partition_of
    from echoless.client.column_batch import ColumnBatches
    from echoless.client.column_partitions import partitions_of
    from echoless.client.columns import Columns, columns
    from echoless.client.command_config import command_security
    from echoless.client.copier.copier import Copier, CopierFigures
    from echoless.client.copier.position import PositionError
    from echoless.client.copier.records import Copy, InputRecord, OutputRecord, to_same_partition
    from echoless.client.copier.settings import CopierSettings
    from echoless.client.errors import DeliveryError, ProducerError
    from echoless.client.login_options import SecurityOptionError
    from echoless.client.producer import BlockingDelivery, Producer
    from echoless.client.ready_batch import ReadyBatch
    from echoless.client.security import Login, Security, Tls, TokenEndpoint, TokenLogin
    from echoless.client.security_options import security_of
    from echoless.client.sequencer_actions import AfterFailure, Failure
    from echoless.client.settings import Settings
    from echoless.client.state import PartitionState, ProducerState, StateError
    from echoless.client.transactions.errors import (
        AbortableError,
        FencedError,
        TransactionError,
        UnansweredError,
    )
    from echoless.client.transactions.group_metadata import GroupMetadata
    from echoless.protocol.record_batch import Codec
    from echoless.protocol.records import Headers
    from echoless.protocol.sasl.mechanism import Mechanism

__all__ = [
    "AbortableError",
    "AcknowledgedBatch",
    "Acknowledgement",
    "Acknowledgements",
    "AfterFailure",
    "AsyncProducer",
    "BlockingDelivery",
    "Codec",
    "ColumnBatches",
    "Columns",
    "Copier",
    "CopierFigures",
    "CopierSettings",
    "Copy",
    "DeliveryError",
    "Failure",
    "FencedError",
    "GroupMetadata",
    "Headers",
    "InputRecord",
    "Login",
    "Mechanism",
    "OutputRecord",
    "PartitionState",
    "PositionError",
    "Producer",
    "ProducerError",
    "ProducerState",
    "ReadyBatch",
    "RecordDelivery",
    "Records",
    "Security",
    "SecurityOptionError",
    "Settings",
    "StateError",
    "Tls",
    "TokenEndpoint",
    "TokenLogin",
    "TransactionError",
    "UnansweredError",
    "columns",
    "command_security",
    "partition_of",
    "partitions_of",
    "security_of",
    "to_same_partition",
]

_EXTRAS: Final = {"numpy": "spark", "pyarrow": "spark", "pyspark": "spark"}
"""Packages that are not among the dependencies, and the extra that installs each."""


def imported_on_use(
    module: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Returns the `__getattr__` and `__dir__` (PEP 562) of a module that imports its names when they are used.

    `homes` maps each name to the module below `echoless` that defines it.
    """

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415  `import echoless` loads nothing

        try:
            value: object = getattr(import_module(f"echoless.{homes[name]}"), name)
        except ModuleNotFoundError as error:
            remedy = what_to_install(error)
            if remedy is None:
                raise
            raise ImportError(f"{module}.{name} needs {remedy}", name=error.name) from error
        setattr(sys.modules[module], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *homes})

    return get, names


def what_to_install(error: ModuleNotFoundError) -> str | None:
    """Names the missing package and the command that installs it; None if no extra has it."""
    package = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    return None if extra is None else f"{package}: pip install 'echoless[{extra}]'"


if not TYPE_CHECKING:  # a type checker would take a `__getattr__` to have every name
    __getattr__, __dir__ = imported_on_use(
        __name__,
        {
            "AbortableError": "client.transactions.errors",
            "AcknowledgedBatch": "client.acknowledgements",
            "Acknowledgement": "client.acknowledgements",
            "Acknowledgements": "client.acknowledgements",
            "AfterFailure": "client.sequencer_actions",
            "AsyncProducer": "client.async_producer",
            "BlockingDelivery": "client.producer",
            "Codec": "protocol.record_batch",
            "ColumnBatches": "client.column_batch",
            "Columns": "client.columns",
            "Copier": "client.copier.copier",
            "CopierFigures": "client.copier.copier",
            "CopierSettings": "client.copier.settings",
            "Copy": "client.copier.records",
            "DeliveryError": "client.errors",
            "Failure": "client.sequencer_actions",
            "FencedError": "client.transactions.errors",
            "GroupMetadata": "client.transactions.group_metadata",
            "Headers": "protocol.records",
            "InputRecord": "client.copier.records",
            "Login": "client.security",
            "Mechanism": "protocol.sasl.mechanism",
            "OutputRecord": "client.copier.records",
            "PartitionState": "client.state",
            "PositionError": "client.copier.position",
            "Producer": "client.producer",
            "ProducerError": "client.errors",
            "ProducerState": "client.state",
            "ReadyBatch": "client.ready_batch",
            "RecordDelivery": "client.async_producer",
            "Records": "client.batch",
            "Security": "client.security",
            "SecurityOptionError": "client.login_options",
            "Settings": "client.settings",
            "StateError": "client.state",
            "Tls": "client.security",
            "TokenEndpoint": "client.security",
            "TokenLogin": "client.security",
            "TransactionError": "client.transactions.errors",
            "UnansweredError": "client.transactions.errors",
            "columns": "client.columns",
            "command_security": "client.command_config",
            "partition_of": "client.batch",
            "partitions_of": "client.column_partitions",
            "security_of": "client.security_options",
            "to_same_partition": "client.copier.records",
        },
    )
