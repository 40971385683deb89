"""The pytest plugin: fixtures `echoless` and `echoless_session` (`docs/testing.md`).

Loaded by every pytest in an environment that has Echoless, so it imports nothing before a test asks
for a broker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from echoless.testkit.echoless import Echoless
    from echoless.testkit.reserve import BrokerReserve, WantedBroker

_MARKER: Final = "echoless"
_TRACES: Final = "--echoless-traces"
_STRICT: Final = "echoless_strict"
_PAGES: Final = "echoless_pages"
_PAGE: Final = "echoless_page"
"""The attribute of a report that has the path of its page."""
_SECURITY: Final = "security"
"""A name among the settings that is not the broker's: the security protocol of its listener."""
_RESERVE: Final[pytest.StashKey[BrokerReserve]] = pytest.StashKey()
_LIVE: Final = pytest.StashKey[list["Echoless"]]()
"""The running brokers, for the report of a test that fails."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the command line and the ini file."""
    group = parser.getgroup("echoless")
    group.addoption(
        _TRACES, metavar="DIR", help="Draw the run of each failed test that used a broker."
    )
    parser.addini(
        "echoless_settings", "Configuration of the brokers, NAME=VALUE a line.", type="linelist"
    )
    parser.addini(
        _STRICT,
        "Fail a test if a fault rule never struck; each may be optional.",
        type="bool",
        default=True,
    )
    parser.addini(
        _PAGES,
        "Folder for an HTML page about each failed test that used a broker; empty: none.",
        default="echoless-failures",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker for `--strict-markers`."""
    config.stash[_LIVE] = []
    config.addinivalue_line(
        "markers", f"{_MARKER}(**settings): configuration of the broker of the fixture echoless"
    )


@pytest.fixture
def echoless(request: pytest.FixtureRequest) -> Iterator[Echoless]:
    """A separate broker for this test, on free ports; settings by `@pytest.mark.echoless(...)`."""
    wanted = _wanted(request.config, request.node)
    reserve = request.config.stash.get(_RESERVE, None)
    yield from _running(request.config, wanted.new() if reserve is None else reserve.take(wanted))


@pytest.fixture(scope="session")
def echoless_session(request: pytest.FixtureRequest) -> Iterator[Echoless]:
    """One broker for all tests that ask for it: faster, but topics and rules are shared."""
    yield from _running(request.config, _wanted(request.config, None).new())


def _running(config: pytest.Config, starting: Echoless) -> Iterator[Echoless]:
    live = config.stash[_LIVE]
    with starting as broker:
        live.append(broker)
        try:
            yield broker
        finally:
            live.remove(broker)


def _wanted(config: pytest.Config, item: pytest.Item | None) -> WantedBroker:
    """The broker of a test. Raises `UsageError`."""
    from echoless.testkit.reserve import WantedBroker

    marked: dict[str, Any] = {}
    for marker in reversed([] if item is None else list(item.iter_markers(_MARKER))):
        if marker.args:
            raise pytest.UsageError("echoless takes settings by name: log_flush='commit'")
        marked |= marker.kwargs
    settings = {**_settings(config), **{n: _text(v) for n, v in marked.items()}}
    security = settings.pop(_SECURITY, "")
    return WantedBroker.of(settings, security)


# Brokers in reserve


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Begins to start the broker of the next test, and that of this one if it is not there."""
    tests = [one for one in (item, nextitem) if one is not None and _uses_broker(one)]
    if tests or _RESERVE in item.config.stash:
        _prepare(item.config, tests)
    return (yield)


def _prepare(config: pytest.Config, tests: list[pytest.Item]) -> None:
    from echoless.testkit.reserve import BrokerReserve

    reserve = config.stash.setdefault(_RESERVE, BrokerReserve())
    wanted = []
    for test in tests:
        with contextlib.suppress(pytest.UsageError):  # raised by the fixture
            wanted.append(_wanted(config, test))
    reserve.prepare(wanted)


def _uses_broker(item: pytest.Item) -> bool:
    """Whether it will ask for the fixture `echoless` of this file, as far as is known before."""
    if "echoless" not in getattr(item, "fixturenames", ()) or item.get_closest_marker("skip"):
        return False
    definitions = getattr(item, "_fixtureinfo").name2fixturedefs.get("echoless", ())  # noqa: B009 - pytest has no public way
    return bool(definitions) and definitions[-1].func.__module__ == __name__


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends brokers that no test has asked for."""
    if _RESERVE in config.stash:
        config.stash[_RESERVE].close()


def _settings(config: pytest.Config) -> dict[str, str]:
    pairs = [line.partition("=") for line in config.getini("echoless_settings")]
    return {name.strip(): value.strip() for name, _, value in pairs}


def _text(value: object) -> str:
    """A setting in the broker's notation: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# Rules that never struck


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fails a test one of whose fault rules never struck."""
    __tracebackhide__ = True
    outcome = yield
    if item.config.getini(_STRICT):
        for broker in item.config.stash[_LIVE]:
            broker.assert_faults_struck()
    return outcome


# When a test fails


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Starts a new page of events for a broker that earlier tests have used."""
    for broker in item.config.stash[_LIVE]:
        broker.begin_test()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to a failed test's report what its brokers decided and logged."""
    report = yield
    live = item.config.stash[_LIVE]
    if report.when in {"setup", "call"} and report.failed and live:
        for broker in live:
            report.sections += _sections(item, broker)
        _write_page(item, report, live)
    return report


def _write_page(item: pytest.Item, report: pytest.TestReport, live: list[Echoless]) -> None:
    """Writes the page about a failed test; where it is goes with the report, also from a worker of pytest-xdist."""
    from echoless.testkit.failed_tests import write_page

    folder = item.config.getini(_PAGES)
    if not folder:
        return
    worker = getattr(item.config, "workerinput", {}).get("workerid", "")
    try:
        path = write_page(
            item.config.rootpath / folder, item.nodeid, report.longreprtext, live, worker
        )
    except OSError as error:
        setattr(report, _PAGE, f"{item.nodeid}: no page: {error}")
    else:
        setattr(report, _PAGE, str(path))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says where the pages about failed tests are."""
    reports = [one for kind in ("failed", "error") for one in terminalreporter.getreports(kind)]
    pages = [page for report in reports if (page := getattr(report, _PAGE, None))]
    if pages:
        terminalreporter.section("echoless: what the brokers of failed tests did")
        for page in pages:
            terminalreporter.line(page)


def _sections(item: pytest.Item, broker: Echoless) -> list[tuple[str, str]]:
    from echoless.diagram import render_text
    from echoless.testkit.admin import AdminError
    from echoless.testkit.lost_answers import describe_unanswered

    try:
        events = broker.events()
    except AdminError as error:
        return [("echoless", f"{error}\n{broker.broker.log_tail()}")]
    if not events:
        return []
    said = [render_text(events), describe_unanswered(events)]
    sections = [("echoless decisions", "\n".join(filter(None, said)))]
    directory = item.config.getoption(_TRACES)
    if directory is not None:
        sections.append(("echoless trace", str(_draw(Path(directory), item, events))))
    return sections


def _draw(directory: Path, item: pytest.Item, events: list[dict[str, Any]]) -> Path:
    from echoless.diagram import render_svg

    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in item.nodeid)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.svg"
    path.write_text(render_svg(events, item.nodeid))
    return path
