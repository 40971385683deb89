"""The same diagram as SVG and as Mermaid text."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from echoless.diagram import render_mermaid, render_svg, render_text
from echoless.diagram.wording import action_text
from tests.diagram.recording import A, B, C, D, E, Recording

_SVG = "{http://www.w3.org/2000/svg}"


def _missing_batch() -> Recording:
    """A recording in which C is lost in transit; D and E are refused, and all three are resent."""
    recording = Recording()
    recording.append(A, window=[])
    recording.append(B, window=[A])
    recording.hit("drop_request", C, detail="later=send")
    recording.refuse(D, window=[A, B])
    recording.refuse(E, window=[A, B])
    recording.append(C, window=[A, B])
    recording.append(D, window=[A, B, C])
    recording.append(E, window=[A, B, C, D])
    recording.hit("drop_response", E, is_new=False, detail="later=send")
    recording.repeat(E, window=[A, B, C, D, E])
    return recording


def _texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{_SVG}text")]


def test_mermaid_tells_the_whole_story() -> None:
    """Arrows, losses, verdicts, reasons and windows, in order."""
    window = "window before: A 114-120, B 121-124"
    assert render_mermaid(_missing_batch().events).splitlines()[:12] == [
        "sequenceDiagram",
        "    participant P0 as app<br/>producer id 4000",
        "    participant B0 as broker 1",
        "    P0->>B0: A 114-120",
        "    Note right of B0: appended at offset 114<br/>window before: empty",
        "    B0-->>P0: offset 114",
        "    P0->>B0: B 121-124",
        "    Note right of B0: appended at offset 121<br/>window before: A 114-120",
        "    B0-->>P0: offset 121",
        "    P0-xB0: C 125-132: request lost (rule-1)",
        "    P0->>B0: D 133-142",
        f"    Note right of B0: refused: 45 OUT_OF_ORDER_SEQUENCE_NUMBER<br/>it does not fit<br/>{window}",
    ]


def test_mermaid_shows_lost_answers_and_the_log() -> None:
    """An answer that is lost ends in a cross; the last note is what is stored."""
    lines = render_mermaid(_missing_batch().events).splitlines()
    assert "    B0--xP0: offset 143, answer lost (rule-1)" in lines
    assert "    P0->>B0: E 143-150 attempt 3" in lines
    assert lines[-1] == "    Note over B0: appended, by offset:<br/>orders-0: A B C D E"


def test_text_is_a_line_or_two_for_each_step() -> None:
    """For a terminal: times, losses, verdicts, and the window where something was not appended."""
    window = "window [114-120 121-124 125-132 133-142 143-150]"
    assert render_text(_missing_batch().events, 4).splitlines() == [
        "... 5 steps before ...",
        "      +5 ms  app --> broker 1: C 125-132 again",
        "                 C appended at offset 125",
        "      +6 ms  app --> broker 1: D 133-142 again",
        "                 D appended at offset 133",
        "      +7 ms  app --> broker 1: E 143-150 again",
        "                 E appended at offset 143",
        "             app X-- broker 1: offset 143 [answer lost (rule-1)]",
        "      +9 ms  app --> broker 1: E 143-150 attempt 3",
        f"                 E duplicate, stored before at offset 143; {window}",
    ]
    assert render_text([]) == "nothing was decided"


def test_mermaid_takes_nothing_from_outside_for_its_own() -> None:
    """Names with line ends, `;`, `#` or tags cannot break out of their place."""
    recording = Recording(client_id="a;b\nNote over P0: #1 <script>")
    recording.append(A, topic="x<y>")
    text = render_mermaid(recording.events)
    assert "a#59;b Note over P0: #35;1 #lt;script#gt;" in text
    assert all(line.startswith(("sequenceDiagram", "    ")) for line in text.splitlines())


def test_svg_is_well_formed_and_says_what_it_is() -> None:
    """A name and a description for those who cannot see it, and nothing from elsewhere."""
    svg = render_svg(_missing_batch().events, "A batch is lost")
    root = ET.fromstring(svg)
    assert root.get("role") == "img"
    assert root.findtext(f"{_SVG}title") == "A batch is lost"
    description = root.findtext(f"{_SVG}desc") or ""
    assert "request lost (rule-1)" in description
    assert "appended, in order: A B C D E" in description
    assert "prefers-color-scheme: dark" in svg
    assert not re.search(r"<script|href|url\(|http://(?!www\.w3\.org/2000/svg)", svg)


def test_svg_shows_every_verdict_window_and_fault() -> None:
    """The numbers that matter can be read in it."""
    texts = _texts(render_svg(_missing_batch().events))
    assert texts.count("refused: 45 OUT_OF_ORDER_SEQUENCE_NUMBER") == 2
    assert "duplicate, stored before at offset 143" in texts
    assert "request lost (rule-1)" in texts
    assert "answer lost (rule-1)" in texts
    assert texts.count("A 114-120") == 9, "in eight windows after it was stored, and in the log"


def test_svg_crosses_stand_where_messages_were_lost() -> None:
    """One cross for each lost message."""
    root = ET.fromstring(render_svg(_missing_batch().events))
    assert sum(path.get("class") == "cross" for path in root.iter(f"{_SVG}path")) == 2


def test_svg_escapes_what_comes_from_outside() -> None:
    """Client ids are text, never markup."""
    recording = Recording(client_id='<b>&"')
    recording.append(A)
    assert '<b>&"' in _texts(render_svg(recording.events))


def test_everything_stands_within_the_picture() -> None:
    """No box extends past the edge, however many partitions and however large the numbers."""
    recording = Recording(client_id="a-client-with-quite-a-long-name")
    big = [(10**9 + 1000 * n, 10**9 + 1000 * n + 999) for n in range(6)]
    for partition in range(9):
        recording.append(big[5], window=big[:5], partition=partition, correlation_id=1)
    root = ET.fromstring(render_svg(recording.events))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for box in root.iter(f"{_SVG}rect"):
        if box.get("width") != "100%":
            assert float(box.get("x", 0)) + float(box.get("width", 0)) <= width
            assert float(box.get("y", 0)) + float(box.get("height", 0)) <= height


@pytest.mark.parametrize(
    "action",
    ["drop_request", "drop_response", "delay_request", "delay_response", "error", "error_after",
     "close_before", "close_after", "close_within", "trickle", "swap", "twice", "crash", "new_one"],
)  # fmt: skip
def test_every_fault_can_be_drawn(action: str) -> None:
    """Each action has words, also one that is newer than the diagram; Mermaid needs some on every arrow."""
    recording = Recording()
    recording.hit(action, A)
    if action not in {"drop_request", "close_before", "error"}:
        recording.append(A, correlation_id=1)
    text = render_mermaid(recording.events)
    assert action_text(action) in text
    assert action_text(action) in render_svg(recording.events)
    assert not [line for line in text.splitlines()[1:] if line.rstrip().endswith(":")]


def test_faults_are_told_with_their_details() -> None:
    """The error that was answered, how long something was held back, where the broker died."""
    recording = Recording()
    recording.hit("error", A, detail="code=NOT_LEADER_OR_FOLLOWER")
    recording.append(B, correlation_id=5)
    recording.hit("delay_response", B, correlation_id=5, detail="ms=100-300")
    recording.hit("crash", C, detail="point=before_append")
    text = render_mermaid(recording.events)
    assert "B0-->>P0: 6 NOT_LEADER_OR_FOLLOWER, answered with an error, not processed" in text
    assert "answer held back 100-300 ms (rule-1)" in text
    assert "broker killed before append (rule-1)" in text


def test_nothing_recorded_is_still_a_picture() -> None:
    """A run without events has no steps, and breaks nothing."""
    assert render_mermaid([]).startswith("sequenceDiagram\n")
    ET.fromstring(render_svg([]))


def test_no_client_id_makes_the_picture_unreadable() -> None:
    """XML allows no control character, not even as an entity: one would spoil the picture for everyone."""
    recording = Recording(client_id="a\x00b\x1b\uffff\ud800c")
    recording.append(A)
    (name,) = (
        one for one in _texts(render_svg(recording.events)) if "\N{REPLACEMENT CHARACTER}" in one
    )
    assert name == "a\N{REPLACEMENT CHARACTER}b" + 3 * "\N{REPLACEMENT CHARACTER}" + "c"


def test_a_very_long_name_is_shortened_in_its_middle() -> None:
    """It would move everything else out of sight; its beginning and its end tell most names apart."""
    recording = Recording(client_id="app-" + "x" * 200 + "-7")
    recording.append(A)
    wide = re.search(r'width="(\d+)', render_svg(recording.events))
    assert wide is not None
    assert int(wide[1]) < 1000
    assert "app-" + "x" * 21 + "\N{HORIZONTAL ELLIPSIS}" + "x" * 12 + "-7" in _texts(
        render_svg(recording.events)
    )
