"""Batches as small coloured boxes: the same hue wherever the same batch appears."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from echoless.diagram.canvas import Canvas, text_width
from echoless.diagram.steps import BatchVerdict, Sent, WindowEntry
from echoless.diagram.style import HUES
from echoless.diagram.wording import is_old_repeat, range_text

HEIGHT: Final = 18
_PADDING: Final = 6
_SPACE: Final = 4
_TEXT_SIZE: Final = 11


def hue(letter: str) -> str:
    """The class that colours a batch; grey for one from before the recording."""
    if not letter.isalpha():
        return "plain"
    index = 0
    for character in letter:
        index = index * 26 + ord(character) - ord("A")
    return f"hue{index % HUES}"


def draw_badge(canvas: Canvas, x: float, y: float, letter: str) -> float:
    """Draws the letter alone, on its hue; returns where the next item may begin."""
    width = badge_width(letter)
    canvas.box(x, y, width, HEIGHT, hue(letter))
    canvas.text(x + width / 2, y + 13, letter, "letter", anchor="middle")
    return x + width + _PADDING


def badge_width(letter: str) -> float:
    """Width of a badge."""
    return _TEXT_SIZE + _PADDING + text_width(letter[1:], _TEXT_SIZE, is_number=True)


def draw_window(canvas: Canvas, x: float, y: float, sent: Sent) -> float:
    """Draws the window the batch was judged against, and the verdict's effect; returns the end."""
    canvas.text(x, y + 13, "window", "small dim")
    x += text_width("window", _TEXT_SIZE) + 12
    window = sent.window or ()
    if not window:
        canvas.text(x, y + 13, "empty", "small dim")
        x += text_width("empty", _TEXT_SIZE) + 12
    for remembered in window:
        x = _draw_pill(canvas, x, y, remembered, is_solid=_is_found(sent, remembered))
    return _draw_newcomer(canvas, x, y, sent, has_window=bool(window))


def draw_stored(
    canvas: Canvas, x: float, y: float, items: Sequence[tuple[WindowEntry, int]]
) -> None:
    """Batches in their log, each with the offset where it begins below it."""
    for remembered, base_offset in items:
        canvas.text(x + 1, y + HEIGHT + 14, str(base_offset), "number small dim")
        x = _draw_pill(canvas, x, y, remembered, is_solid=False)


def _is_found(sent: Sent, remembered: WindowEntry) -> bool:
    numbers = sent.batch.base_sequence, sent.batch.last_sequence
    return (
        sent.verdict in {BatchVerdict.DUPLICATE, BatchVerdict.DIVERGENT}
        and numbers == remembered[1:]
    )


def _draw_newcomer(canvas: Canvas, x: float, y: float, sent: Sent, *, has_window: bool) -> float:
    """Draws the batch itself: after the window if it was appended, apart from it if refused."""
    batch = sent.batch
    itself = WindowEntry(sent.letter, batch.base_sequence, batch.last_sequence)
    if sent.verdict is BatchVerdict.APPENDED:
        canvas.text(x + 1, y + 13, "+", "number dim")
        return _draw_pill(canvas, x + 13, y, itself, is_solid=True)
    if sent.verdict is BatchVerdict.REJECTED and not is_old_repeat(sent) and has_window:
        return _draw_pill(canvas, x + 8, y, itself, is_solid=False, frame="gap")
    return x


def _draw_pill(
    canvas: Canvas, x: float, y: float, batch: WindowEntry, *, is_solid: bool, frame: str = ""
) -> float:
    letter, *numbers = batch
    text = f"{letter} {range_text(*numbers)}".strip()
    width = text_width(text, _TEXT_SIZE, is_number=True)
    look = frame or (hue(letter) if is_solid else f"{hue(letter)} soft")
    canvas.box(x, y, width + 2 * _PADDING, HEIGHT, look)
    classes = "solid small" if is_solid else "number small"
    canvas.fitted_text(x + _PADDING, y + 13, text, classes, width)
    return x + width + 2 * _PADDING + _SPACE
