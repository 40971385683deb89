"""The other brokers, reached over links that can be cut.

Without rules each method is that of the wrapped peers. A cut link is silent in both directions: a
call waits for its timeout, or for the end of the rule; `port.py` drops what comes from the broker at
the other end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from echoless.broker.config.values import Address
from echoless.broker.replication.peers import PeerError, Peers

if TYPE_CHECKING:
    from echoless.broker.faults.hits import Hits
    from echoless.broker.faults.rule import ActiveRule

Call = Callable[..., Coroutine[Any, Any, dict[str, Any]]]


class FaultyPeers:
    """`Peers` that wrap others."""

    def __init__(self, inner: Peers) -> None:
        self._inner = inner
        self._rules: Sequence[ActiveRule] = ()
        self._hits: Hits | None = None
        self.call: Call = inner.call
        self.disconnect = inner.disconnect
        self.close = inner.close

    def use(self, rules: Sequence[ActiveRule], hits: Hits) -> None:
        """Cuts these links from now on; calls in flight over them fail."""
        before = {rule.name for rule in self._rules}
        self._rules, self._hits = rules, hits
        self.call = self._call if rules else self._inner.call
        for rule in rules:
            if rule.name not in before:
                self._inner.disconnect(_broker_id(rule))

    async def _call(
        self, broker_id: int, address: Address, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        now_s = asyncio.get_running_loop().time()
        for rule in self._rules:
            if _broker_id(rule) == broker_id and rule.turns.take(now_s):
                assert self._hits is not None
                self._hits.on_broker(rule, str(address))
                await _silence(rule, timeout_s)
                raise PeerError(f"broker {broker_id}: the fault rule {rule.name} cuts the link")
        return await self._inner.call(broker_id, address, message, timeout_s=timeout_s)


def _broker_id(rule: ActiveRule) -> int:
    assert rule.action.broker_id is not None
    return rule.action.broker_id


async def _silence(rule: ActiveRule, timeout_s: float) -> None:
    ended = asyncio.ensure_future(rule.has_ended.wait())
    try:
        await asyncio.wait((ended,), timeout=timeout_s)
    finally:
        ended.cancel()
