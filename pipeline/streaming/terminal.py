"""Progress on the terminal: one changing line, or a line now and then if the output is not a terminal."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.filesize import decimal
from rich.live import Live
from rich.text import Text

from echoless.pipeline.streaming.figures import StreamFigures

_PLAIN_EVERY_S: Final = 10.0
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600


class ProgressLine:
    """Line that shows figures on standard error. Use it in a `with` block."""

    def __init__(self, title: str, figures: StreamFigures, console: Console | None = None) -> None:
        self._title = title
        self._figures = figures
        self._console = console or Console(stderr=True, highlight=False, markup=False)
        self._live: Live | None = None
        self._shown_at = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(Text(self.text()), console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.update(Text(self.text()), refresh=True)
            self._live.stop()

    def update(self) -> None:
        """Updates the line; call it often. Without a terminal a line is printed every ten seconds."""
        if self._live is not None:
            self._live.update(Text(self.text()), refresh=True)
        elif time.monotonic() - self._shown_at >= _PLAIN_EVERY_S:
            self._shown_at = time.monotonic()
            self._console.print(self.text(), soft_wrap=True)

    def text(self) -> str:
        figures = self._figures
        lag = figures.lag_total
        waiting = "" if lag is None else f", {lag:,} {figures.lag_unit} waiting"
        remaining = figures.remaining_s
        if lag and remaining is not None:
            waiting += f", {duration_text(remaining)} left"
        return (
            f"{self._title}: {figures.records:,} records, {decimal(figures.bytes)}, "
            f"{figures.records_per_s:,.0f}/s{waiting}"
        )


def duration_text(seconds: float) -> str:
    """Writes a duration in two units: `42 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S} s"
    return f"{whole // _HOUR_S:,} h {whole % _HOUR_S // _MINUTE_S} min"


def summary(title: str, figures: StreamFigures) -> str:
    """Returns a run's outcome in one line."""
    rate = figures.records / max(figures.elapsed_s, 0.001)
    found = f", {figures.repeats:,} of them were stored already" if figures.repeats else ""
    lag = figures.lag_total
    waiting = f"; {lag:,} {figures.lag_unit} waiting" if lag else ""
    return (
        f"{title}: {figures.records:,} records, {decimal(figures.bytes)}, {figures.batches} "
        f"batches in {figures.elapsed_s:.1f} s ({rate:,.0f}/s){found}{waiting}"
    )
