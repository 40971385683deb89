"""Fault rules that never struck, in words: a test that passes because nothing went wrong proves nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_REMEDY = (
    "A rule that never struck tests nothing: mend its match or its schedule, or say that it need not strike "
    "(optional=True)."
)


def describe_missed(rules: Sequence[Mapping[str, Any]]) -> str:
    """A line for each rule, and for each step of a script, with the counts; and what to do."""
    lines = [line for rule in rules for line in _lines(rule)]
    return "\n".join(["fault rules that never struck:", *lines, _REMEDY])


def rule_in_words(rule: Mapping[str, Any]) -> str:
    """The action, the conditions and the schedule, as the command line takes them."""
    conditions = conditions_in_words(rule)
    return " ".join([action_in_words(rule), *([f"({conditions})"] if conditions else [])])


def conditions_in_words(rule: Mapping[str, Any]) -> str:
    """The match and the schedule."""
    given = [*rule["match"].items(), *rule["schedule"].items()]
    return ", ".join(f"{name}={value}" for name, value in given)


def action_in_words(rule: Mapping[str, Any]) -> str:
    """The action, or the actions of a script."""
    if "script" in rule:
        return " then ".join(action_in_words(step) for step in rule["script"])
    action = rule["action"]
    fields = [f"{name}={value}" for name, value in action.items() if name != "type"]
    return " ".join([action["type"], *fields])


def _lines(rule: Mapping[str, Any]) -> Iterator[str]:
    if "script" not in rule:
        yield f"  {rule['name']}: {rule_in_words(rule)}: {_count(rule['seen'])} matched, none struck"
        return
    for number, step in enumerate(rule["script"], 1):
        if not step["hits"]:
            yield (
                f"  {rule['name']}, step {number} of {len(rule['script'])}: {rule_in_words(step)}: "
                f"{_count(step['seen'])} matched, none struck"
            )


def _count(number: int) -> str:
    return "nothing" if not number else str(number)
