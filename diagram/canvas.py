"""SVG elements, collected in drawing order. Knows nothing of diagrams.

Sizes are in pixels. Text widths are estimated, for nothing here can measure a font: monospace text
is 0.6 of its size wide in every usual font, the width of other text is rather overestimated.
"""

from __future__ import annotations

import re
from typing import Final
from xml.sax.saxutils import escape, quoteattr

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML file may contain; clients may use them in their names."""
_MONOSPACE: Final = 0.602
_PROPORTIONAL: Final = 0.58
_CAPITAL: Final = 0.7


def text_width(text: str, size: float = 12, *, is_number: bool = False) -> float:
    """The approximate width of the text."""
    if is_number:
        return len(text) * size * _MONOSPACE
    capitals = sum(character.isupper() for character in text)
    return size * (capitals * _CAPITAL + (len(text) - capitals) * _PROPORTIONAL)


class Canvas:
    """Draws; `document` gives the file."""

    def __init__(self) -> None:
        self._elements: list[str] = []
        self.width = 0.0
        """The right edge of the drawing."""

    def text(
        self, x: float, y: float, text: str, classes: str = "", *, anchor: str = "start"
    ) -> None:
        """A line of text whose base line begins (ends, has its middle) at `x`."""
        where = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._add(f'<text x="{_n(x)}" y="{_n(y)}"{_class(classes)}{where}>{_escaped(text)}</text>')

    def fitted_text(self, x: float, y: float, text: str, classes: str, width: float) -> None:
        """Text with exactly this width, in whatever font."""
        self._add(
            f'<text x="{_n(x)}" y="{_n(y)}"{_class(classes)} textLength="{_n(width)}" '
            f'lengthAdjust="spacingAndGlyphs">{_escaped(text)}</text>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, classes: str) -> None:
        self._add(
            f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}"{_class(classes)}/>'
        )

    def box(
        self, x: float, y: float, width: float, height: float, classes: str, *, radius: float = 4
    ) -> None:
        self.reach(x + width)
        self._add(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" '
            f'rx="{_n(radius)}"{_class(classes)}/>'
        )

    def path(self, commands: str, classes: str) -> None:
        self._add(f'<path d="{commands}"{_class(classes)}/>')

    def dot(self, x: float, y: float, radius: float, classes: str) -> None:
        self._add(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"{_class(classes)}/>')

    def reach(self, x: float) -> None:
        """Extends the picture at least this far to the right."""
        self.width = max(self.width, x)

    def document(self, height: float, *, title: str, description: str, style: str) -> str:
        """The whole file: a picture with a name and a description for those who cannot see it."""
        size = f"{_n(self.width)} {_n(height)}"
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" '
            f'width="{_n(self.width)}" height="{_n(height)}" role="img" '
            f'aria-labelledby="title description">'
        )
        return "\n".join(
            [
                head,
                f'<title id="title">{_escaped(title)}</title>',
                f'<desc id="description">{_escaped(description)}</desc>',
                f"<style>{_escaped(style)}</style>",
                '<rect width="100%" height="100%" rx="8" class="paper"/>',
                *self._elements,
                "</svg>\n",
            ]
        )

    def _add(self, element: str) -> None:
        self._elements.append(element)


def _class(classes: str) -> str:
    return f" class={quoteattr(classes)}" if classes else ""


def _escaped(text: str) -> str:
    return escape(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text))


def _n(number: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{number:.1f}".removesuffix(".0")
