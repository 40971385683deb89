"""A stream as a command runs it: progress on the terminal, metrics, and one line at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import typer
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pipeline.exactly_once import ExactlyOnceSink
from pipeline.streaming.figures import Figures
from pipeline.streaming.metrics import FiguresCollector, MetricsServer
from pipeline.streaming.run import Prepare, StreamError, StreamRun
from pipeline.streaming.terminal import ProgressLine, summary

FAILED: Final = 1


@dataclass(slots=True, frozen=True, kw_only=True)
class Job:
    """What a command does beside its stream."""

    kind: str
    name: str
    metrics_listen: str | None
    lag_of: Callable[[Any], dict[str, int]]

    def run(self, stream: DataStreamWriter, prepare: Prepare, sink: ExactlyOnceSink) -> None:
        """Returns when the stream is done or was stopped; raises `typer.Exit` where it failed."""
        figures = Figures()
        with ExitStack() as stack:
            line = stack.enter_context(ProgressLine(self.name, figures))
            if self.metrics_listen is not None:
                self._serve_metrics(stack, figures)
            run = StreamRun(
                prepare, sink.write, figures=figures, on_tick=line.update, lag_of=self.lag_of
            )
            try:
                run.run(stream)
            except StreamError as error:
                fail(f"{self.name}: {error}")
            typer.echo(f"{summary(self.name, figures)}{self._ending(figures)}")

    def _ending(self, figures: Figures) -> str:
        lag = figures.lag_total
        return f"; {lag:,} waiting" if lag else ""

    def _serve_metrics(self, stack: ExitStack, figures: Figures) -> None:
        assert self.metrics_listen is not None
        collector = FiguresCollector(self.kind, self.name, figures)
        try:
            server = stack.enter_context(MetricsServer(self.metrics_listen, collector))
        except (ValueError, OSError) as error:
            raise typer.BadParameter(str(error), param_hint="--metrics-listen") from error
        typer.echo(f"metrics at http://{server.address}/metrics", err=True)


def fail(reason: str) -> NoReturn:
    """Ends the command with one line. Raises `typer.Exit`."""
    typer.echo(reason, err=True)
    raise typer.Exit(FAILED)


def pairs(texts: list[str] | None, option: str) -> Mapping[str, str]:
    """Of NAME=VALUE. Raises `typer.BadParameter`."""
    found = [text.partition("=") for text in texts or []]
    wrong = [name for name, separator, _ in found if not separator or not name]
    if wrong:
        raise typer.BadParameter(f"NAME=VALUE is needed, not {wrong[0]!r}", param_hint=option)
    return {name: value for name, _, value in found}
