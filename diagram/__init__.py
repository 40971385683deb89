"""A recorded run as a sequence diagram (`echoless trace`; `docs/trace.md`).

    events = list(Admin(broker.admin).follow_decisions(...))
    Path("run.svg").write_text(render_svg(events))

An event is a line of `/decisions?follow=true`, or a note added by the caller: `{"event": "note",
"time_ms": ..., "text": "the producer restarts"}`.
"""

from __future__ import annotations

from collections.abc import Iterable

from echoless.diagram import mermaid, svg, text
from echoless.diagram.folding import fold
from echoless.diagram.lives import Event
from echoless.diagram.model import build_diagram
from echoless.diagram.steps import Diagram

__all__ = ["render_mermaid", "render_svg", "render_text"]


def render_svg(events: Iterable[Event], title: str = "", *, theme: str | None = None) -> str:
    """Draws events as an SVG file, for light and dark pages; `theme` fixes the colours to those of `light` or `dark`."""
    return svg.render(_folded(events), title, theme)


def render_mermaid(events: Iterable[Event]) -> str:
    """Draws events as Mermaid text, without the fence that Markdown puts around it."""
    return mermaid.render(_folded(events))


def render_text(events: Iterable[Event], steps_max: int = 60) -> str:
    """Draws the last `steps_max` steps in plain text, for a terminal."""
    return text.render(_folded(events), steps_max)


def _folded(events: Iterable[Event]) -> Diagram:
    diagram = build_diagram(events)
    diagram.steps = fold(diagram.steps)
    return diagram
