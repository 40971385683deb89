"""DeleteAcls (31), versions 1-3: removes the ACLs that filters match, and returns them (KIP-140).

An ACL that several filters match is returned for each of them. v1 (KIP-290): pattern types. v2:
flexible. v3 (KIP-373): users as resources. Not served: v0.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.authorization.acl_nodes import AclChangeError
from echoless.broker.handlers import permits
from echoless.broker.handlers.acl_binding import (
    entry_fields,
    find_access,
    pattern_fields,
    read_filter,
)
from echoless.broker.handlers.apis import declared
from echoless.broker.handlers.group_answers import with_rows
from echoless.broker.handlers.refusals import Refusal
from echoless.broker.handlers.served import Served
from echoless.broker.network.request import Answer, Request
from echoless.broker.network.turns import work_in_turns
from echoless.protocol.acl import AclOperation, Binding, BindingFilter, Entries, Entry, Pattern
from echoless.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Access
    from echoless.broker.services import Services

API = declared(__name__)


_FILTERS_PER_TURN: Final = 50


async def handle(request: Request, services: Services) -> Answer:
    """One row per filter, in the order of the request."""
    try:
        access = find_access(services)
    except KafkaError as error:
        refused = _failure(error)
        return with_rows(
            {"filter_results": [refused] * len(request.body.filters)}, request.body.filters
        )
    matches: list[list[Binding] | KafkaError] = []
    for wanted in request.body.filters:
        matches.append(await _matches(access, wanted))
        if len(matches) % _FILTERS_PER_TURN == 0:
            await asyncio.sleep(0)
    removed, failures = await _remove(access, matches)
    rows: list[dict[str, Any]] = []
    await work_in_turns(map(rows.append, (_row(one, removed, failures) for one in matches)))
    return with_rows({"filter_results": rows}, range(len(rows) + sum(map(_size, matches))))


def _size(matches: list[Binding] | KafkaError) -> int:
    return 0 if isinstance(matches, KafkaError) else len(matches)


async def _matches(access: Access, wanted: Any) -> list[Binding] | KafkaError:
    """The ACLs that a filter matches."""
    try:
        one = read_filter(wanted)
    except KafkaError as error:
        return error
    found: list[Binding] = []
    await work_in_turns(
        map(found.extend, (_of_pattern(access, one, p) for p in access.acls.patterns()))
    )
    return found


def _of_pattern(access: Access, wanted: BindingFilter, pattern: Pattern) -> list[Binding]:
    if not wanted.matches_pattern(pattern):
        return []
    entries = access.acls.get(pattern)
    return [Binding(pattern, one) for one in sorted(entries) if wanted.matches_entry(one)]


async def _remove(
    access: Access, matches: list[list[Binding] | KafkaError]
) -> tuple[dict[Pattern, Entries], dict[Pattern, KafkaError]]:
    """Removes the ACLs of each pattern in one go; returns those that were there, and the errors."""
    by_pattern: defaultdict[Pattern, set[Entry]] = defaultdict(set)
    for found in matches:
        for pattern, entry in () if isinstance(found, KafkaError) else found:
            by_pattern[pattern].add(entry)
    removed: dict[Pattern, Entries] = {}
    failures: dict[Pattern, KafkaError] = {}
    for pattern, entries in by_pattern.items():
        try:
            removed[pattern] = await access.remove(pattern, frozenset(entries))
        except AclChangeError as error:
            failures[pattern] = KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(error))
    return removed, failures


def _row(
    matches: list[Binding] | KafkaError,
    removed: dict[Pattern, Entries],
    failures: dict[Pattern, KafkaError],
) -> dict[str, Any]:
    if isinstance(matches, KafkaError):
        return _failure(matches)
    acls = [
        {**_codes(failures.get(pattern)), **pattern_fields(pattern), **entry_fields(entry)}
        for pattern, entry in matches
        if pattern in failures or entry in removed[pattern]
    ]
    return {**_codes(None), "matching_acls": acls}


def _codes(error: KafkaError | None) -> dict[str, Any]:
    if error is None:
        return {"error_code": ErrorCode.NONE, "error_message": None}
    return {"error_code": error.code, "error_message": error.message or None}


def _failure(error: KafkaError) -> dict[str, Any]:
    return {**_codes(error), "matching_acls": ()}


def refuse(refusal: Refusal, _services: Services) -> Answer:
    """The error in the row of each filter."""
    return {"filter_results": [_failure(refusal.error) for _ in refusal.request.body.filters]}


SERVED = Served(API, handle, refuse, permit=permits.cluster(AclOperation.ALTER))
