"""The vocabulary of rules as data, from the declarations that the parser reads with."""

from __future__ import annotations

from typing import Any

from echoless.broker.faults.action import TYPES, Action, ActionField
from echoless.broker.faults.match import Match
from echoless.broker.faults.schedule import Schedule


def document() -> dict[str, Any]:
    """The actions with their fields, and the names of the conditions and of the schedule's fields."""
    return {
        "actions": [
            {
                "type": name,
                "says": kind.says,
                "place": Action.place_of(name).value,
                "fields": [_field(*field) for field in kind.fields.items()],
            }
            for name, kind in TYPES.items()
        ],
        "match": list(Match.__slots__),
        "schedule": list(Schedule.__slots__),
    }


def _field(name: str, field: ActionField) -> dict[str, Any]:
    return {
        "name": name,
        "takes": field.takes,
        "needed": field.is_needed,
        "choices": list(field.choices),
    }
