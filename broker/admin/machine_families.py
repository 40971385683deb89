"""The metrics of what a broker stands on: its log directory, its certificates and its machine's clock, also beside the other brokers'."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily

from echoless.broker.network.turns import in_thread

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from echoless.broker.admin.view import BrokerView

_PREFIX: Final = "echoless_"


async def machine_families(broker: BrokerView) -> list[Metric]:
    """The families; the volume is looked at in a thread."""
    space = await in_thread(partial(_space, broker.config.data_dir))
    names = ("log_directory_bytes", "log_directory_free_bytes")
    texts = ("Bytes of the volume of data_dir", "Those that are free for the broker")
    expiries = GaugeMetricFamily(
        f"{_PREFIX}certificate_expiry_seconds",
        "When the certificate in use expires, in seconds since 1970",
        labels=["listener"],
    )
    for listener, end_s in sorted(({} if broker.tls is None else broker.tls.expiries_s).items()):
        expiries.add_metric([listener], end_s)
    clocks = GaugeMetricFamily(
        f"{_PREFIX}clock_ahead_seconds",
        "Seconds by which the clock of this broker is ahead of another one's, below 0 if it is behind",
        labels=["other"],
    )
    for broker_id, ahead_ms in sorted(broker.membership.clocks_ahead_ms.items()):
        clocks.add_metric([str(broker_id)], ahead_ms / 1000)
    return [
        GaugeMetricFamily(
            f"{_PREFIX}log_directory_failed",
            "1 where the disk has failed or was full: nothing is stored until a restart",
            int(broker.logs.failure is not None),
        ),
        *(
            GaugeMetricFamily(_PREFIX + name, text, value)
            for name, text, value in zip(names, texts, space, strict=False)
        ),
        expiries,
        clocks,
        GaugeMetricFamily(
            f"{_PREFIX}wall_clock_seconds",
            "The machine's clock, in seconds since 1970",
            broker.clock.wall_ms() / 1000,
        ),
    ]


def _space(directory: str) -> tuple[int, ...]:
    """The bytes of the volume, and those that are free; nothing if it cannot be asked."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return ()
    return usage.total, usage.free
