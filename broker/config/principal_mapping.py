"""The mapping of the name in a client's certificate to its principal: `ssl_principal_mapping_rules`.

Rules are Kafka's: comma-separated, each `DEFAULT` (the whole name) or `RULE:pattern/replacement/[LU]`. The
pattern must match the whole name; the first rule that matches decides; `L` and `U` fold the case of its result.
Pure.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_PART: Final = r"((?:\\.|[^\\/])*)"
_RULE: Final = rf"\s*(?:(DEFAULT)|RULE:{_PART}/{_PART}/([LU]?))\s*(?:,|\Z)"
_REFERENCE: Final = r"\\(.)|\$(\d+)"


class PrincipalRule(NamedTuple):
    """One rule; without a pattern, it is `DEFAULT`."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The principal's name; None if the rule does not match."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        result = re.sub(
            _REFERENCE,
            lambda reference: _expanded(reference, match),
            self.replacement,
            flags=re.DOTALL,
        )
        return {"L": result.lower(), "U": result.upper()}.get(self.case, result)


class PrincipalMapping(NamedTuple):
    """The rules, as written and parsed."""

    text: str
    rules: tuple[PrincipalRule, ...]

    def __str__(self) -> str:
        return self.text

    def apply(self, name: str) -> str | None:
        """The principal's name; None if no rule matches: the client is not admitted then."""
        for rule in self.rules:
            mapped = rule.apply(name)
            if mapped is not None:
                return mapped
        return None


DEFAULT_MAPPING: Final = PrincipalMapping("DEFAULT", (PrincipalRule(None),))
"""The whole name. Made by hand, so that a start compiles no expression that few brokers need."""


def parse_mapping(text: str) -> PrincipalMapping:
    """Raises `ValueError` with what is wrong."""
    rules, position, rule = [], 0, re.compile(_RULE)
    while position < len(text):
        found = rule.match(text, position)
        if found is None:
            raise ValueError(f"no rule begins at {text[position:]!r}")
        rules.append(_rule(found))
        position = found.end()
    if not rules:
        raise ValueError("no rules")
    return PrincipalMapping(text, tuple(rules))


def _rule(found: re.Match[str]) -> PrincipalRule:
    default, pattern, replacement, case = found.groups()
    if default:
        return PrincipalRule(None)
    try:
        return PrincipalRule(re.compile(pattern), replacement, case)
    except re.error as error:
        raise ValueError(str(error)) from error


def _expanded(reference: re.Match[str], match: re.Match[str]) -> str:
    """A group's text; as in Java, `$12` is group 1 and a `2` if there are fewer than twelve groups.

    A number above the number of groups is literal.
    """
    escaped, digits = reference.groups()
    if escaped is not None:
        return str(escaped)
    groups = match.re.groups
    for end in range(len(digits), 0, -1):
        if int(digits[:end]) <= groups:
            return (match[int(digits[:end])] or "") + digits[end:]
    return f"${digits}"
