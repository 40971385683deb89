"""Figures of a stream as Prometheus metrics, over HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Self

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from echoless.client.cluster import parse_addresses
from echoless.pipeline.streaming.figures import StreamFigures

_COUNTERS: Final = (
    ("records", "Records written and acknowledged."),
    ("bytes", "Bytes of the keys and values of these records."),
    ("repeats", "Records that an earlier attempt had stored, among these."),
    ("batches", "Batches written."),
)


class FiguresCollector(Collector):
    """Collector that reads the figures on every scrape."""

    def __init__(self, kind: str, name: str, figures: StreamFigures) -> None:
        """`kind`: the job, `mirror` or `ingest`; `name`: its name."""
        self._prefix = f"echoless_{kind}"
        self._name = name
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        figures = self._figures
        for field, text in _COUNTERS:
            counter = CounterMetricFamily(f"{self._prefix}_{field}", text, labels=["name"])
            counter.add_metric([self._name], getattr(figures, field))
            yield counter
        rate = GaugeMetricFamily(
            f"{self._prefix}_records_per_second", "Rate of the last seconds.", labels=["name"]
        )
        rate.add_metric([self._name], figures.records_per_s)
        yield rate
        remaining = figures.remaining_s
        if remaining is not None:
            left = GaugeMetricFamily(
                f"{self._prefix}_remaining_seconds",
                "Time for what waits, at the present rate.",
                labels=["name"],
            )
            left.add_metric([self._name], remaining)
            yield left
        lag = GaugeMetricFamily(
            f"{self._prefix}_lag", "Waiting in the source.", labels=["name", "source"]
        )
        for source, count in figures.lag.items():
            lag.add_metric([self._name, source], count)
        yield lag


class MetricsServer:
    """HTTP server of the metrics. Use it in a `with` block."""

    def __init__(self, listen: str, collector: Collector) -> None:
        """Starts serving at `listen`, HOST:PORT; port 0 takes a free one. Raises `ValueError`, `OSError`."""
        (address,) = parse_addresses(listen)
        registry = CollectorRegistry()
        registry.register(collector)
        self._server, self._thread = start_http_server(address.port, address.host, registry)
        self.address = f"{address.host}:{self._server.server_port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
