"""`docs/scenarios.md`: what each scenario shows, its diagram, and each client's outcome."""

from __future__ import annotations

from typing import Final

from echoless.diagram import render_mermaid
from echoless.testkit.scenarios.catalogue import SCENARIOS
from echoless.testkit.scenarios.everything import Runs
from echoless.testkit.scenarios.parts import CLIENTS, LIMITATIONS, NO_PART, SCRIPTED
from echoless.testkit.scenarios.recorder import about
from echoless.testkit.scenarios.run import ScenarioResult
from echoless.testkit.scenarios.scenario import Scenario
from echoless.testkit.scenarios.verdict import Outcome

BEGIN: Final = "<!-- verdicts: written by python -m echoless.testkit.scenarios --write-docs -->"
END: Final = "<!-- end of verdicts -->"
_DASH: Final = "-"
_CELLS: Final = {
    Outcome.ONCE: "once, in order",
    Outcome.TWICE: "twice",
    Outcome.REFUSED: "refused, not stored",
    Outcome.LOST: "acknowledged, not stored",
    Outcome.OUT_OF_ORDER: "out of order",
}
_HEAD: Final = """\
# The protocol's flows as scenarios

Written by `python -m echoless.testkit.scenarios --write-docs`, from what was seen. A scenario starts brokers,
sets faults, lets a producer play, and compares what was acknowledged with what the log holds.

    echoless scenario list
    echoless scenario run missing-acknowledgements
    echoless scenario run missing-acknowledgements --client java-4 --svg run.svg

The scripted producer sends batches as they are written here, six at a time, and does what the protocol
requires of a producer and no more. The others are real clients, with idempotence on and a request
timeout of 1 s; each is a separate process that speaks
[one line protocol](../testkit/clients/README.md). Batches are named after the sequences of their
records: A 114-120, B 121-124, C 125-132, D 133-142, E 143-150, F 151-155, after 0 to 113, which are
stored before the story begins. (A diagram names a new producer's batches, and those of a new epoch,
by new letters: to the broker they are others.)
Scenarios with two brokers start a ZooKeeper out of PySpark's jars, and need `java`.

## Verdicts

What the log held of the records that the client sent, when it was done. The run of `make test` fails
where this table says something else than was seen. What the same clients make of rules drawn from a
seed, all at once, is in [the soak](../tests/soak/README.md).

"""


def render_page(runs: Runs) -> str:
    """The whole page."""
    sections = [_section(one, runs[one.name, SCRIPTED]) for one in SCENARIOS.values()]
    return f"{_HEAD}{_versions(runs)}\n\n{BEGIN}\n\n{render_verdicts(runs)}\n{END}\n\n" + "\n".join(
        sections
    )


def render_verdicts(runs: Runs) -> str:
    """The table of all clients, and the reasons for unusual outcomes."""
    notes: dict[str, int] = {}
    rows = [f"| scenario | {' | '.join(CLIENTS)} |"]
    rows.append("|---" * (len(CLIENTS) + 1) + "|")
    for name in SCENARIOS:
        cells = [_cell(name, client, runs, notes) for client in CLIENTS]
        rows.append(f"| [{name}](#{name}) | {' | '.join(cells)} |")
    reasons = [f"{number}. {reason}" for reason, number in notes.items()]
    return "\n".join([*rows, "", *reasons, ""])


def read_verdicts(page: str) -> str:
    """The part of the page that `render_verdicts` wrote."""
    return page.partition(BEGIN)[2].partition(END)[0].strip("\n") + "\n"


def _versions(runs: Runs) -> str:
    """The clients' versions, outside the part that a test compares: a newer client may do the same."""
    found = {one.client: one.version for one in runs.values() if one.version}
    return f"Seen with {', '.join(f'{name} {found[name]}' for name in CLIENTS if name in found)}."


def _cell(scenario: str, client: str, runs: Runs, notes: dict[str, int]) -> str:
    reason = NO_PART.get((scenario, client))
    if reason is not None:
        return f"{_DASH} ({_note(f'{_DASH}: {reason}.', notes)})"
    run = runs[scenario, client]
    text = _CELLS[run.verdict.outcome] + (", fatal" if run.verdict.fatal else "")
    limitation = LIMITATIONS.get((scenario, client))
    if limitation is not None:
        return f"{text} ({_note(f'{client}: {limitation.reason}.', notes)})"
    return text if run.problem is None else f"{text}: {run.problem}"


def _note(text: str, notes: dict[str, int]) -> int:
    return notes.setdefault(text, len(notes) + 1)


def _section(scenario: Scenario, run: ScenarioResult) -> str:
    where = "One broker" if scenario.brokers == 1 else f"{scenario.brokers} brokers"
    settings = ", ".join(f"`{name}={value}`" for name, value in scenario.settings.items())
    if scenario.users:
        log_in = f"a log-in, the producer as {scenario.users[0]}"
        settings = f"{log_in}, and {settings}" if settings else log_in
    return (
        f"## {scenario.name}\n\n{scenario.shows}\n\n"
        f"* Brokers: {where}{f' with {settings}' if settings else ''}.\n"
        f"* Faults: {scenario.faults}.\n"
        f"* At the end: {scenario.holds}\n\n{_diagrams(run)}"
    )


def _diagrams(run: ScenarioResult) -> str:
    """One diagram for each topic of the story."""
    topics = dict.fromkeys(event["topic"] for event in run.events if event["event"] == "decision")
    diagrams = []
    for topic in topics:
        events = about(run.events, {topic})
        diagrams.append(f"```mermaid\n{render_mermaid(events)}```\n")
    return "\n".join(diagrams)
