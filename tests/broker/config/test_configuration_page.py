"""`docs/configuration.md` says what the code does."""

from __future__ import annotations

from pathlib import Path

from echoless.broker.config.names import settings
from echoless.broker.config.topic import topic_settings
from echoless.broker.config.values import canonical
from tests.broker.config.configuration_page import with_tables

_PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_page_lists_every_name_with_its_default_and_meaning() -> None:
    """Each name has one row, in agreement with the code."""
    rows = {line.split("`")[1]: line for line in _PAGE.read_text().splitlines() if "| `" in line}
    for setting in settings().values():
        row = rows.pop(setting.name)
        for text in (canonical(setting.default), setting.kind.expects, setting.doc):
            assert text in row, setting.name
    for topic_setting in topic_settings().values():
        row = rows.pop(topic_setting.name)
        behind = topic_setting.broker_name or canonical(topic_setting.default)
        for text in (behind, topic_setting.kind.expects, topic_setting.doc):
            assert text in row, topic_setting.name
    assert not rows, "the page has names that do not exist"


def test_tables_are_as_the_code_makes_them() -> None:
    """`python -m tests.broker.config.configuration_page` has nothing to change."""
    page = _PAGE.read_text()
    assert with_tables(page) == page, "run python -m tests.broker.config.configuration_page"
