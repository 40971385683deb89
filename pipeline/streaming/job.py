"""Parts that every stream command shares: progress, metrics, signals, one line at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, NoReturn

import typer

from echoless.pipeline.streaming.counted_writer import CountedWriter, WriteBatch
from echoless.pipeline.streaming.figures import StreamFigures
from echoless.pipeline.streaming.metrics import FiguresCollector, MetricsServer
from echoless.pipeline.streaming.run import StreamError
from echoless.pipeline.streaming.stop_request import StopRequest
from echoless.pipeline.streaming.terminal import ProgressLine, summary

FAILED: Final = 1


@dataclass(slots=True, kw_only=True)
class Job:
    """One run of a command."""

    kind: str
    name: str
    metrics_listen: str | None
    figures: StreamFigures
    stop: StopRequest = field(default_factory=StopRequest)
    line: ProgressLine = field(init=False)

    def run(self, work: Callable[[Job, CountedWriter], None], write: WriteBatch) -> None:
        """Runs the work until it is done or stopped. Raises `typer.Exit` if it fails."""
        self.line = ProgressLine(self.name, self.figures)
        with ExitStack() as stack:
            stack.enter_context(self.stop)
            if self.metrics_listen is not None:
                self._serve_metrics(stack, self.metrics_listen)
            try:
                with self.line:
                    work(self, CountedWriter(write, self.figures))
            except StreamError as error:
                fail(f"{self.name}: {error}")
        typer.echo(summary(self.name, self.figures))

    def say(self, text: str) -> None:
        """Writes a line about the run on standard error; callable from any thread."""
        typer.echo(f"{self.name}: {text}", err=True)

    def _serve_metrics(self, stack: ExitStack, listen: str) -> None:
        collector = FiguresCollector(self.kind, self.name, self.figures)
        try:
            server = stack.enter_context(MetricsServer(listen, collector))
        except (ValueError, OSError) as error:
            raise typer.BadParameter(str(error), param_hint="--metrics-listen") from error
        typer.echo(f"metrics at http://{server.address}/metrics", err=True)


def fail(reason: str) -> NoReturn:
    """Ends the command with one line on standard error. Raises `typer.Exit`."""
    typer.echo(reason, err=True)
    raise typer.Exit(FAILED)


def pairs(texts: list[str] | None, option: str) -> Mapping[str, str]:
    """Parses NAME=VALUE texts. Raises `typer.BadParameter`."""
    found = [text.partition("=") for text in texts or []]
    wrong = [name for name, separator, _ in found if not separator or not name]
    if wrong:
        raise typer.BadParameter(f"NAME=VALUE is needed, not {wrong[0]!r}", param_hint=option)
    return {name: value for name, _, value in found}
