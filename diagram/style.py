"""The look of the SVG, in light and dark mode.

Colours are written out twice instead of as CSS variables, which not every SVG renderer knows. A
batch keeps its hue wherever it appears; green, amber and red are reserved for verdicts.
"""

from __future__ import annotations

from string import Template
from typing import Final

HUES: Final = 6

_LIGHT: Final = {
    "paper": "#ffffff",
    "card": "#f5f7fa",
    "ink": "#1d2433",
    "dim": "#5d687b",
    "edge": "#c3cad6",
    "hair": "#e8ebf0",
    "stored": "#157347",
    "repeat": "#a35200",
    "refused": "#c0213a",
    "wash": "#fdeef0",
    "on_hue": "#ffffff",
    "hue0": "#2f62c9",
    "hue1": "#7a45c4",
    "hue2": "#0b7d80",
    "hue3": "#b03486",
    "hue4": "#66730f",
    "hue5": "#1a7aa8",
}
_DARK: Final = {
    "paper": "#12151c",
    "card": "#1c212b",
    "ink": "#e8ebf2",
    "dim": "#9aa5b8",
    "edge": "#465064",
    "hair": "#232936",
    "stored": "#55c794",
    "repeat": "#f2a94f",
    "refused": "#ff7183",
    "wash": "#34191f",
    "on_hue": "#10131a",
    "hue0": "#7aa5ff",
    "hue1": "#bb92f8",
    "hue2": "#4fc9c6",
    "hue3": "#f083c6",
    "hue4": "#bccb5a",
    "hue5": "#62bfeb",
}
_SHAPES: Final = """
text { font: 12px Inter, "Segoe UI", system-ui, -apple-system, "Helvetica Neue", "DejaVu Sans", sans-serif; }
text.title { font-size: 16px; font-weight: 600; }
text.name { font-size: 13px; font-weight: 600; }
text.small { font-size: 11px; }
text.verdict { font-weight: 600; }
text.number, text.letter, text.solid { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
text.letter { font-size: 11px; font-weight: 700; }
text.solid { font-weight: 600; }
text.over { paint-order: stroke; stroke-width: 4px; stroke-linejoin: round; }
.life { stroke-width: 1.5; }
.arrow, .answer { stroke-width: 1.4; fill: none; }
.answer { stroke-dasharray: 5 3; }
.vanished { stroke-width: 1.4; stroke-dasharray: 1 5; stroke-linecap: round; }
.cross { stroke-width: 2.6; stroke-linecap: round; fill: none; }
.gap { fill: none; stroke-dasharray: 3 2.5; }
.soft { fill-opacity: .12; stroke-width: 1; }
"""
_COLOURS: Final = """
.paper { fill: $paper; }
text { fill: $ink; }
text.dim { fill: $dim; }
text.over { stroke: $paper; }
text.letter, text.solid { fill: $on_hue; }
.stored, text.stored { fill: $stored; }
.repeat, text.repeat { fill: $repeat; }
.refused, text.refused { fill: $refused; }
.head, .remark { fill: $card; stroke: $edge; }
.busy { fill: $card; stroke: $dim; }
.bolt { fill: $wash; stroke: $refused; }
.life { stroke: $edge; }
.rule { stroke: $hair; }
.arrow { stroke: $ink; }
.answer { stroke: $dim; }
.tip { fill: $ink; }
.tip-answer { fill: $dim; }
.cross, .vanished, .gap { stroke: $refused; }
.plain { fill: $dim; stroke: $dim; }
.hue0 { fill: $hue0; stroke: $hue0; }
.hue1 { fill: $hue1; stroke: $hue1; }
.hue2 { fill: $hue2; stroke: $hue2; }
.hue3 { fill: $hue3; stroke: $hue3; }
.hue4 { fill: $hue4; stroke: $hue4; }
.hue5 { fill: $hue5; stroke: $hue5; }
"""


def stylesheet(theme: str | None = None) -> str:
    """The whole style sheet: light, and dark for viewers who prefer it; or one of the two for all."""
    colours = Template(_COLOURS)
    if theme is not None:
        return f"{_SHAPES}{colours.substitute(_DARK if theme == 'dark' else _LIGHT)}\n"
    dark = f"@media (prefers-color-scheme: dark) {{{colours.substitute(_DARK)}}}"
    return f"{_SHAPES}{colours.substitute(_LIGHT)}{dark}\n"
