"""The rules that a broker starts with, from a file: JSON, or TOML where the name says so.

JSON: what `POST /faults` takes. TOML: a table `[[rules]]` for each rule.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path

from echoless.broker.config.loading import Config, ConfigError
from echoless.broker.faults.action import InjectionPoint
from echoless.broker.faults.feasible import check_feasible
from echoless.broker.faults.fields import RuleError
from echoless.broker.faults.permission import refusal
from echoless.broker.faults.reading_rules import AnyText, read_rules


def read_rules_file(path: str, config: Config) -> Sequence[AnyText]:
    """The rules, which this broker can use and takes.

    Raises `ConfigError` of one line: the option, the file and what is wrong in it.
    """
    refused = refusal(config)
    if refused is not None:
        raise ConfigError(f"--faults: {refused}")
    try:
        text = Path(path).read_text(encoding="utf-8")
        given = tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
        rules = read_rules(given)
        _check(rules)
        check_feasible([part for rule in rules for part in rule.parts], config)
    except OSError as error:
        raise ConfigError(f"--faults: cannot read {path}: {error.strerror}") from error
    except (ValueError, RuleError) as error:  # what is no JSON, TOML or UTF-8 is a ValueError
        raise ConfigError(f"--faults: {path}: {error}") from error
    return rules


def _check(rules: Sequence[AnyText]) -> None:
    names = [rule.name for rule in rules if rule.name is not None]
    for name in names:
        if names.count(name) > 1:
            raise RuleError(f"name {name!r} is taken: it stands in the file twice")
    for rule in [part for whole in rules for part in whole.parts]:
        if rule.action.place is InjectionPoint.ONCE:
            what = "session" if rule.action.type == "expire_session" else "group"
            raise RuleError(
                f"{rule.action.type} is done at once, and at the start there is no {what} yet"
            )
