"""The regular expressions that members subscribe with: the shell finds the topics that match, the group stores them.

An expression is resolved when a member first comes with it, and again when topics have changed, not too often.
"""

from __future__ import annotations

from typing import Final

from echoless.coordinators.events import Now
from echoless.coordinators.groups.consumer.group import ConsumerGroup, Resolution
from echoless.coordinators.groups.consumer.requests import ConsumerHeartbeat
from echoless.coordinators.groups.consumer.topics import KnownTopics
from echoless.coordinators.groups.effects import Effects, ResolveRegex
from echoless.coordinators.groups.events import RegexResolved
from echoless.protocol.state_records.consumer_group_values import RegexValue
from echoless.protocol.state_records.group_keys import RegexKey

REFRESH_MS: Final = 10_000
"""A regular expression is resolved again no sooner than this, if topics have changed."""


def is_known(group: ConsumerGroup, pattern: str) -> bool:
    """Whether the topics of an expression are known."""
    return pattern in group.state.regexes or pattern in group.resolutions


def resolve(group: ConsumerGroup, pattern: str, request: ConsumerHeartbeat) -> Effects:
    """Have the topics of an expression found, unless that is under way."""
    if pattern in group.resolving:
        return []
    group.resolving[pattern] = {}
    return [ResolveRegex(group.group_id, pattern, request.may_describe, request.client_host)]


def refresh(
    group: ConsumerGroup,
    member_id: str,
    request: ConsumerHeartbeat,
    topics: KnownTopics,
    now: Now,
) -> Effects:
    """Have the member's expression resolved again if topics have changed."""
    pattern = group.state.members[member_id].topic_regex
    if pattern is None:
        return []
    known = group.resolutions.get(pattern)
    if known is None or (
        known.version != topics.version and now.monotonic_ms - known.at_ms >= REFRESH_MS
    ):
        return resolve(group, pattern, request)
    return []


def remember(group: ConsumerGroup, event: RegexResolved, now: Now) -> None:
    """Keep the topics that an expression matches, to be stored with the next turn."""
    found = Resolution(event.topics, event.version, now.monotonic_ms)
    group.resolutions[event.pattern] = found
    group.must_match = True


def store_matches(group: ConsumerGroup, now: Now) -> None:
    """Store what the members' expressions match, and forget the expressions that no member has or waits to join with."""
    if not group.must_match:
        return
    group.must_match = False
    group_id, stored = group.group_id, group.state.regexes
    patterns = {one.topic_regex for one in group.state.members.values()} - {None}
    for pattern in sorted(stored.keys() - patterns):
        group.put(RegexKey(group_id, pattern), None)
    unused = group.resolutions.keys() - patterns
    for pattern in unused and unused - _waited_for(group):
        del group.resolutions[pattern]
    for pattern, found in group.resolutions.items():
        if pattern not in patterns:
            continue
        if pattern not in stored or stored[pattern].topics != found.topics:
            value = RegexValue(found.topics, found.version, now.wall_ms)
            group.put(RegexKey(group_id, pattern), value)


def _waited_for(group: ConsumerGroup) -> set[str | None]:
    """The expressions of heartbeats whose turn has not come: forgotten, they would be resolved again and again."""
    return {one.topic_regex for one in group.queue.values() if isinstance(one, ConsumerHeartbeat)}
