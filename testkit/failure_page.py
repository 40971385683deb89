"""One HTML file about a failed test: what was seen, drawn and listed, for somebody who has nothing but the file.

Self-contained: no script, no font, nothing from any network, and a policy that forbids them. Whatever a client, a test or a
broker has said is escaped, and bounded: a page takes at most `PAGE_BYTES_MAX`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from echoless.diagram import render_svg
from echoless.testkit.lost_answers import describe_unanswered
from echoless.testkit.missed_faults import action_in_words, conditions_in_words

PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
_DRAWN_MAX: Final = 300
"""Events that are drawn, the last ones."""
_LISTED_MAX: Final = 1000
_CELL_MAX: Final = 300
_FAILURE_MAX: Final = 64 * 1024
_LOG_MAX: Final = 64 * 1024
_UNANSWERED_MAX: Final = 4096
_DRAWING_MAX: Final = 1024 * 1024
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"

Event = Mapping[str, Any]
Rule = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStory:
    """The share of one broker in a test."""

    address: str
    """`host:port` of its port for Kafka clients."""
    events: Sequence[Event] = ()
    """Decisions, faults and transactions, oldest first."""
    rules: Sequence[Rule] = ()
    """All fault rules of the test with their counts; removed ones, too."""
    settings: Mapping[str, str] = field(default_factory=dict)
    log: str = ""
    trouble: str = ""
    """Why nothing more is known, of a broker that did not answer."""


def render_page(title: str, failure: str, brokers: Sequence[BrokerStory], about: str = "") -> str:
    """The file's text. `failure` is what pytest says; `about` is a line on when and where it ran."""
    for drawn, listed in ((_DRAWN_MAX, _LISTED_MAX), (0, _LISTED_MAX), (0, _LISTED_MAX // 10)):
        page = _page(title, failure, about, [_broker(one, drawn, listed) for one in brokers])
        if len(page.encode(errors="replace")) <= PAGE_BYTES_MAX:
            return page
    return _page(title, failure, about, ["<p>There are too many brokers to be listed.</p>"])


def _page(title: str, failure: str, about: str, parts: Iterable[str]) -> str:
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(title)} failed</title><style>{_STYLE}</style></head><body>",
            f"<h1>{_text(title)} <b>failed</b></h1>",
            f"<p>{_text(about)}</p>" if about else "",
            "<h2>What pytest says</h2>",
            f"<pre>{escape(_end_of(failure, _FAILURE_MAX))}</pre>",
            *parts,
            "</body></html>\n",
        ]
    )


def _broker(story: BrokerStory, drawn: int, listed: int) -> str:
    sections = [f"<h2>Broker {_text(story.address)}</h2>", *_settings(story.settings)]
    if story.trouble:
        sections.append(f"<p><b>{_text(story.trouble)}</b></p>")
    sections += _rules(story)
    unanswered = describe_unanswered(story.events)
    if unanswered:
        sections.append(f"<pre>{escape(_end_of(unanswered, _UNANSWERED_MAX))}</pre>")
    sections += _drawing(story.events[-drawn:] if drawn else (), len(story.events))
    sections += _events(story.events[-listed:], len(story.events))
    log = escape(_end_of(story.log, _LOG_MAX)) or "(It has logged nothing.)"
    sections.append(f"<h3>Log</h3><pre>{log}</pre>")
    return f"<section>{''.join(sections)}</section>"


def _settings(settings: Mapping[str, str]) -> Iterator[str]:
    if settings:
        words = ", ".join(f"{name}={value}" for name, value in settings.items())
        yield f"<p>Settings: {_text(words)}</p>"


# --- faults ---


def _rules(story: BrokerStory) -> Iterator[str]:
    rows = [row for rule in story.rules for row in _rule_rows(rule)]
    yield "<h3>Faults</h3>"
    if not rows:
        yield "<p>No rule was set.</p>"
        return
    heads = ("rule", "does", "to, and when", "matched", "struck", "")
    yield _table(heads, rows[:_LISTED_MAX], _left_out(len(rows) - _LISTED_MAX, "rules"))


def _rule_rows(rule: Rule) -> Iterator[tuple[str, ...]]:
    for number, step in enumerate(rule.get("script", [rule]), 1):
        name = f"{rule['name']}/{number}" if "script" in rule else str(rule["name"])
        state = "never struck" if not step["hits"] else ""
        if state and rule.get("optional"):
            state = "never struck (optional)"
        does, when = action_in_words(step), conditions_in_words(step)
        yield name, does, when, str(step["seen"]), str(step["hits"]), state


# --- what happened ---


def _drawing(events: Sequence[Event], count: int) -> Iterator[str]:
    if not events:
        return
    drawing = render_svg(events, "What happened")
    if len(drawing) > _DRAWING_MAX:
        return
    yield "<h3>Sequence diagram</h3>"
    yield _left_out(count - len(events), "earlier events")
    yield f'<div class="e-drawing">{drawing}</div>'


def _events(events: Sequence[Event], count: int) -> Iterator[str]:
    yield "<h3>Decisions</h3>"
    if not events:
        yield "<p>None is remembered.</p>"
        return
    began_ms = int(events[0]["time_ms"])
    rows = [_event_row(event, began_ms) for event in events]
    heads = ("ms", "what", "client", "about", "outcome", "why")
    yield _table(heads, rows, _left_out(count - len(events), "earlier events"))


def _event_row(event: Event, began_ms: int) -> tuple[str, ...]:
    at = f"+{int(event['time_ms']) - began_ms}"
    client = event.get("client_id") or event.get("address") or ""
    match event.get("event"):
        case "fault":
            about = " ".join(filter(None, (event["api"], event.get("about", ""))))
            batches = [_batch(batch) for batch in event["batches"]]
            what = f"{event['action']} {event['detail']}"
            return at, "fault", client, "; ".join([about, *batches]), what, f"rule {event['rule']}"
        case "transaction":
            outcome = event["error"] or event["result"] or ""
            about = f"{event['transactional_id']} {_producer(event)}"
            return at, f"transaction: {event['step']}", client, about, outcome, event["reason"]
        case _:
            outcome = event["error"] or f"{event['decision']} at {event['base_offset']}"
            return at, "batch", client, _batch(event), outcome, event["reason"]


def _batch(event: Event) -> str:
    place = f"{event['topic']}-{event['partition']}"
    return f"{place} {event['base_sequence']}-{event['last_sequence']} of {_producer(event)}"


def _producer(event: Event) -> str:
    return f"producer {event['producer_id']} epoch {event['producer_epoch']}"


# --- text ---


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], note: str) -> str:
    head = "".join(f"<th>{_text(one)}</th>" for one in heads)
    body = "".join(f"<tr>{''.join(f'<td>{_text(one)}</td>' for one in row)}</tr>" for row in rows)
    return f"{note}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _left_out(count: int, what: str) -> str:
    return f"<p>{count} {what} are left out.</p>" if count > 0 else ""


def _text(value: object) -> str:
    text = str(value)
    return escape(text if len(text) <= _CELL_MAX else f"{text[:_CELL_MAX]} ...")


def _end_of(text: str, most: int) -> str:
    return (
        text if len(text) <= most else f"... ({len(text) - most} characters before)\n{text[-most:]}"
    )


_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 14px/1.45 system-ui, "DejaVu Sans", sans-serif; margin: 1.5rem auto; max-width: 1500px; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h1 b { color: #c0213a; } h2 { font-size: 1.1rem; margin-top: 2rem; } h3 { font-size: 1rem; }
pre, .e-drawing { overflow: auto; border: 1px solid #8886; border-radius: 6px; padding: .7rem; max-height: 40rem; }
pre { font: 12px/1.4 ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
.e-drawing { max-height: 60rem; }
table { border-collapse: collapse; font-size: 13px; } th { text-align: left; }
th, td { padding: .15rem .7rem .15rem 0; border-bottom: 1px solid #8884; vertical-align: top; overflow-wrap: anywhere; }
"""
