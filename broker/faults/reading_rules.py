"""Reading what is posted, or stands in a file: one rule, a list of rules, or an object with a list."""

from __future__ import annotations

from collections.abc import Mapping

from echoless.broker.faults.fields import RuleError, RuleFields
from echoless.broker.faults.rule import RuleText
from echoless.broker.faults.script import ScriptText

AnyText = RuleText | ScriptText


def read_rules(given: object) -> list[AnyText]:
    """One rule, a list of them, or `{"rules": [...]}`. Raises `RuleError`."""
    if isinstance(given, Mapping) and "rules" in given:
        fields = RuleFields("", given)
        given = fields.value("rules")
        fields.close()
        if not isinstance(given, list):
            raise RuleError(f"rules takes a list of rules, not {given!r}")
    listed = given if isinstance(given, list) else [given]
    if not listed:
        raise RuleError("rules takes at least one rule")
    return [_read(one) for one in listed]


def _read(given: object) -> AnyText:
    is_script = isinstance(given, Mapping) and given.get("script") is not None
    return ScriptText.read(given) if is_script else RuleText.read(given)
