"""Compares sent and stored records: is each stored once, and if not, what differs?

Pure. Records are compared as key and value, or by value alone if only values are given. A record
that was sent twice on purpose has to be stored twice. Order is checked within a partition, and only
for records whose content was sent once: the others cannot be told apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from echoless.testkit.stored_records import StoredRecord

Text = bytes | str | None
Sent = bytes | str | None | tuple[bytes | str | None, bytes | str | None]
"""A value, or a key and a value; text is compared as UTF-8."""

Content = tuple[bytes | None, bytes | None]
"""Key and value; the key is None if only values are compared."""

_SHOWN_MAX: Final = 10
_SEQUENCES: Final = 2**31


class Difference(NamedTuple):
    """The differences. All empty: stored exactly once, in order."""

    sent: int
    stored: int
    lost: list[Content]
    """Each as often as it is missing."""
    doubled: dict[Content, list[StoredRecord]]
    """All copies of each record that is stored more often than it was sent."""
    unexpected: list[StoredRecord]
    """Records that were never sent."""
    out_of_order: list[tuple[StoredRecord, StoredRecord]]
    """Neighbours in a partition of which the second was sent before the first."""

    def __bool__(self) -> bool:
        return bool(self.lost or self.doubled or self.unexpected or self.out_of_order)


def compare(
    sent: Iterable[Sent], stored: Sequence[StoredRecord], *, ordered: bool = True
) -> Difference:
    """The difference between `sent` and `stored`.

    Raises `TypeError` for a mix of pairs and plain values.
    """
    contents, has_keys = _contents(sent)
    expected = Counter(contents)
    copies: defaultdict[Content, list[StoredRecord]] = defaultdict(list)
    for record in stored:
        copies[_content(record, has_keys=has_keys)].append(record)
    lost = [
        content for content, count in expected.items() for _ in range(count - len(copies[content]))
    ]
    return Difference(
        sent=len(contents),
        stored=len(stored),
        lost=lost,
        doubled={c: found for c, found in copies.items() if 0 < expected[c] < len(found)},
        unexpected=[record for c, found in copies.items() if c not in expected for record in found],
        out_of_order=_out_of_order(contents, expected, stored, has_keys) if ordered else [],
    )


def _out_of_order(
    contents: list[Content],
    expected: Counter[Content],
    stored: Sequence[StoredRecord],
    has_keys: bool,
) -> list[tuple[StoredRecord, StoredRecord]]:
    position = {c: index for index, c in enumerate(contents) if expected[c] == 1}
    latest: dict[int, tuple[int, StoredRecord]] = {}
    seen: set[Content] = set()
    found = []
    for record in stored:
        content = _content(record, has_keys=has_keys)
        if content not in position or content in seen:
            continue  # a second copy counts as doubled, not as out of order
        seen.add(content)
        index = position[content]
        before = latest.get(record.partition)
        if before is not None and index < before[0]:
            found.append((before[1], record))
        latest[record.partition] = index, record
    return found


def _contents(sent: Iterable[Sent]) -> tuple[list[Content], bool]:
    items = list(sent)
    pairs = sum(isinstance(item, tuple) for item in items)
    if pairs not in {0, len(items)}:
        raise TypeError("sent holds both values and pairs of key and value")
    if not pairs:
        return [(None, _bytes(item)) for item in items if not isinstance(item, tuple)], False
    return [(_bytes(item[0]), _bytes(item[1])) for item in items if isinstance(item, tuple)], True


def _content(record: StoredRecord, *, has_keys: bool) -> Content:
    return (record.key if has_keys else None, record.value)


def _bytes(text: Text) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


# Descriptions


def describe(topic: str, difference: Difference, decisions: Sequence[Mapping[str, Any]]) -> str:
    """The difference line by line, each stored copy with the decision that stored it."""
    appends = [d for d in decisions if d["decision"] == "append" and d["topic"] == topic]

    def one(record: StoredRecord) -> str:
        return _shown((record.key, record.value)) + _places([record], appends)

    doubled = [_shown(c) + _places(copies, appends) for c, copies in difference.doubled.items()]
    swapped = [f"{one(b)}\n    was sent before {one(a)}" for a, b in difference.out_of_order]
    return "\n".join(
        [
            _summary(topic, difference),
            *_listed("lost", [_shown(content) for content in difference.lost]),
            *_listed("doubled", doubled),
            *_listed("never sent", [one(record) for record in difference.unexpected]),
            *_listed("out of order", swapped),
        ]
    )


def _summary(topic: str, difference: Difference) -> str:
    counts = {
        "lost": difference.lost,
        "doubled": difference.doubled,
        "never sent": difference.unexpected,
        "out of order": difference.out_of_order,
    }
    found = ", ".join(f"{len(items)} {what}" for what, items in counts.items() if items)
    return f"{topic}: {difference.sent} sent, {difference.stored} stored: {found or 'all once'}"


def _listed(what: str, items: Sequence[str]) -> list[str]:
    lines = [f"  {what}: {item}" for item in items[:_SHOWN_MAX]]
    rest = len(items) - _SHOWN_MAX
    return [*lines, f"  {what}: and {rest} more"] if rest > 0 else lines


def _shown(content: Content) -> str:
    key, value = content
    return repr(value) if key is None else f"{key!r} = {value!r}"


def _places(copies: Sequence[StoredRecord], appends: Sequence[Mapping[str, Any]]) -> str:
    """The offsets of the copies, each with the decision that stored it, if it is known."""
    lines, undecided = [], []
    for copy in copies:
        place = f"{copy.partition}:{copy.offset}"
        append = next((one for one in appends if _position(copy, one) is not None), None)
        if append is None:
            undecided.append(place)
        else:
            sequence = (append["base_sequence"] + (_position(copy, append) or 0)) % _SEQUENCES
            lines.append(
                f"at {place}, sequence {sequence} of producer {append['producer_id']} "
                f"epoch {append['producer_epoch']}, client {append['client_id'] or append['address']}"
            )
    if undecided:
        lines.append(f"at {', '.join(undecided)}; no decision about it is remembered")
    return "".join(f"\n    {line}" for line in lines)


def _position(record: StoredRecord, append: Mapping[str, Any]) -> int | None:
    """The record's index in the batch; None if it belongs to another one."""
    position: int = record.offset - append["base_offset"]
    last = (append["last_sequence"] - append["base_sequence"]) % _SEQUENCES
    is_in_it = append["partition"] == record.partition and 0 <= position <= last
    return position if is_in_it else None
