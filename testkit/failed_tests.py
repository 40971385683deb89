"""Pages about failed tests, as the pytest plugin writes them: one HTML file each, in one folder."""

from __future__ import annotations

import platform
import time
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from echoless.testkit.admin import AdminError
from echoless.testkit.failure_page import BrokerStory, render_page

if TYPE_CHECKING:
    from collections.abc import Iterable

    from echoless.testkit.echoless import Echoless

_NAME_MAX: Final = 100


def write_page(
    folder: Path, test: str, failure: str, brokers: Iterable[Echoless], worker: str = ""
) -> Path:
    """Writes the page about a test and returns its path. Raises `OSError`."""
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    where = f"Python {platform.python_version()} on {platform.system()}"
    about = ", ".join(filter(None, (when, where, worker)))
    page = render_page(test, failure, [story_of(one) for one in brokers], about)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / page_name(test)
    path.write_text(page, encoding="utf-8", errors="replace")
    return path


def page_name(test: str) -> str:
    """The name of the file: one for each test, whatever characters its id has."""
    readable = "".join(one if one.isalnum() or one in "-_." else "_" for one in test)
    number = zlib.crc32(test.encode(errors="replace"))
    return f"{readable[-_NAME_MAX:].lstrip('.')}-{number:08x}.html"


def story_of(broker: Echoless) -> BrokerStory:
    """The broker's share in the test; of one that does not answer, its log."""
    known = partial(
        BrokerStory,
        address=broker.bootstrap_servers,
        settings=broker.broker.settings,
        log=broker.broker.log_text(),
    )
    try:
        rules, events = broker.fault_rules(), broker.events()
    except AdminError as error:
        return known(trouble=f"The broker does not answer: {error}")
    return known(events=events, rules=rules)
