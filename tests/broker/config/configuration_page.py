"""The two tables of `docs/configuration.md`, made from the code.

`python -m tests.broker.config.configuration_page` writes them into the page; the prose around them stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from echoless.broker.config.dynamic import DYNAMIC
from echoless.broker.config.names import settings
from echoless.broker.config.topic import topic_settings
from echoless.broker.config.values import canonical

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"
_TABLE = re.compile(r"^\|.*\|\n(?:^\|.*\|\n)+", re.MULTILINE)


def broker_table() -> str:
    """Every name of the broker."""
    return "".join(
        _lines(
            ("name", "flag", "default", "takes", "meaning", "changes while it runs"),
            (
                (
                    f"`{setting.name}`",
                    f"`--{setting.name.replace('_', '-')}`" if setting.flag_metavar else "`--set`",
                    _code(canonical(setting.default)),
                    setting.kind.expects,
                    setting.doc,
                    "yes" if setting.name in DYNAMIC else "",
                )
                for setting in settings().values()
            ),
        )
    )


def topic_table() -> str:
    """Every name that a topic may set for itself."""
    return "".join(
        _lines(
            ("name", "falls back to", "takes", "meaning"),
            (
                (
                    f"`{setting.name}`",
                    _code(setting.broker_name or canonical(setting.default)),
                    setting.kind.expects,
                    setting.doc,
                )
                for setting in topic_settings().values()
            ),
        )
    )


def with_tables(page: str) -> str:
    """The page with its first two tables regenerated."""
    tables = iter((broker_table(), topic_table()))
    return _TABLE.sub(lambda old: next(tables, old[0]), page)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _lines(columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |\n"
    yield f"|{'---|' * len(columns)}\n"
    for row in rows:
        yield f"| {' | '.join(row)} |\n"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
