"""Rules by the API whose requests they can match, so that a request meets no others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from echoless.broker.faults.rule import ActiveRule
from echoless.broker.faults.served import BATCH_API


class RulesByApi:
    """Rules for requests, in their order."""

    def __init__(self, rules: Iterable[ActiveRule] = ()) -> None:
        self.all = tuple(rules)
        apis = {_api_of(rule) for rule in self.all}
        self._of_any = self._of(None)
        self._by_api = {api: self._of(api) for api in apis if api is not None}

    def of(self, api: str) -> Sequence[ActiveRule]:
        """The rules that can match a request of this API."""
        return self._by_api.get(api, self._of_any)

    def _of(self, api: str | None) -> tuple[ActiveRule, ...]:
        return tuple(rule for rule in self.all if _api_of(rule) in {None, api})


def _api_of(rule: ActiveRule) -> str | None:
    """The only API of its requests; None: any."""
    match = rule.match
    return BATCH_API if match.api is None and match.is_about_batches else match.api
