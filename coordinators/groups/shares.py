"""The shares of those for whom a coordinator holds groups, members and offsets.

A sharer is a principal, or the address of a client that has not authenticated. A member counts towards who joined with
it; what is stored of a group, towards who made it or has taken it over. Soft state: after a load nothing is
anyone's until it is used again, and counts only towards the bounds of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from echoless.coordinators.groups.usage import NOTHING, Usage, negative, plus

_GROUP: Final = Usage(groups=1)


@dataclass(slots=True)
class Account:
    """The amount that is stored of a group, or is being stored, and for whom."""

    sharer: str = ""
    """Empty: for no one yet."""
    held: Usage = _GROUP


class _Member(NamedTuple):
    """A member: for whom it is held, and the bytes of its subscription."""

    sharer: str
    size: int


class GroupShares:
    """The amounts that one coordinator holds for each sharer."""

    def __init__(self) -> None:
        self._used: dict[str, Usage] = {}
        self._accounts: dict[str, Account] = {}
        self._members: dict[str, dict[str, _Member]] = {}
        """By group and member id."""

    def used_by(self, sharer: str) -> Usage:
        """The amount that is held for the sharer."""
        return self._used.get(sharer, NOTHING)

    def _count(self, sharer: str, change: Usage) -> None:
        if not sharer:
            return
        used = plus(self._used.get(sharer, NOTHING), change)
        if any(used):
            self._used[sharer] = used
        else:
            self._used.pop(sharer, None)

    # --- groups

    def account(self, group_id: str) -> Account:
        """The account of a group, which begins with it."""
        account = self._accounts.get(group_id)
        if account is None:
            account = self._accounts[group_id] = Account()
        return account

    def give(self, group_id: str, sharer: str) -> None:
        """Count the group towards this sharer from now on."""
        account = self.account(group_id)
        if account.sharer != sharer:
            self._count(account.sharer, negative(account.held))
            account.sharer = sharer
            self._count(sharer, account.held)

    def adopt(self, group_id: str, sharer: str) -> None:
        """Count a group that is no one's towards who uses it."""
        if sharer and not self.account(group_id).sharer:
            self.give(group_id, sharer)

    def change(self, group_id: str, change: Usage) -> None:
        """Count what is stored of a group in addition or, below 0, no longer."""
        account = self.account(group_id)
        account.held = plus(account.held, change)
        self._count(account.sharer, change)
        if account.held == _GROUP and not account.sharer:
            del self._accounts[group_id]  # as when a group is deleted in a log that is being read

    def drop(self, group_id: str) -> None:
        """Forget a group of which nothing is left."""
        self.drop_members(group_id)
        account = self._accounts.pop(group_id, None)
        if account is not None:
            self._count(account.sharer, negative(account.held))

    # --- members

    def hold_member(self, group_id: str, member_id: str, sharer: str, size: int) -> None:
        """Count a member, or its new subscription, towards who has joined with it first."""
        members = self._members.setdefault(group_id, {})
        before = members.get(member_id)
        if before is not None:
            sharer = before.sharer or sharer
            self._count(before.sharer, Usage(members=-1, size=-before.size))
        members[member_id] = _Member(sharer, size)
        self._count(sharer, Usage(members=1, size=size))

    def rename_member(self, group_id: str, before: str, after: str) -> None:
        """Go on counting a member that has another id now."""
        members = self._members.get(group_id, {})
        if before in members:
            members[after] = members.pop(before)

    def drop_member(self, group_id: str, member_id: str) -> None:
        """Count a member no longer."""
        members = self._members.get(group_id, {})
        dropped = members.pop(member_id, None)
        if dropped is not None:
            self._count(dropped.sharer, Usage(members=-1, size=-dropped.size))
            if not members:
                del self._members[group_id]

    def drop_members(self, group_id: str) -> None:
        """Count none of the group's members any longer."""
        for member_id in list(self._members.get(group_id, ())):
            self.drop_member(group_id, member_id)
