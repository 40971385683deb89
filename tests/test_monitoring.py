"""The dashboard and the alert rules of docs/monitoring ask for what a broker's /metrics has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import promql_parser
import pytest
import pytest_asyncio
import yaml
from prometheus_client.parser import text_string_to_metric_families

from echoless.broker.admin.exposition import Exposition
from echoless.broker.cluster.stand_alone import StandAlone
from tests.support.echoless import REPOSITORY
from tests.support.in_process import in_process
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection, create_topic, fetch_log
from tests.support.raw_produce import PartitionData

MONITORING = REPOSITORY / "docs" / "monitoring"
OF_PROMETHEUS = {"up": set()}
TARGET_LABELS = {"job", "instance"}
"""Labels that Prometheus adds to every series."""


def dashboard() -> Any:
    return json.loads((MONITORING / "dashboard.json").read_text())


def rules() -> list[Any]:
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> Iterator[tuple[str, str]]:
    """Every query with its title, as Grafana and Prometheus would send it."""
    for panel in dashboard()["panels"]:
        for number, target in enumerate(panel.get("targets", [])):
            query = target["expr"].replace("$__rate_interval", "5m")
            yield f"{panel['title']} {number}", query
    for rule in rules():
        yield rule["alert"], rule["expr"]


QUERIES = dict(queries())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def series(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The names in the /metrics of a broker that has served requests, each with its labels."""
    async with in_process(tmp_path_factory.mktemp("broker")) as running:
        kafka = await RawConnection.open(running.kafka_address)
        await create_topic(kafka, "t", 1)
        await kafka.produce(9, -1, [PartitionData("t", 0, plain_batch([b"x"]).encode())])
        await fetch_log(kafka, "t", 0)
        await kafka.close()
        running.broker.tls = SimpleNamespace(expiries_s={"PLAINTEXT": 0.0})  # type: ignore[assignment]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(StandAlone, "clocks_ahead_ms", {2: 0})
            text = (await Exposition(running.broker).text()).decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def selectors(query: str) -> list[Any]:
    """The metrics that a query selects. Raises `ValueError` for what is no PromQL."""
    found = []

    def visit(expression: Any) -> None:
        if isinstance(expression, promql_parser.VectorSelector):
            found.append(expression)
        elif isinstance(expression, promql_parser.MatrixSelector):
            found.append(expression.vector_selector)

    promql_parser.walk(promql_parser.parse(query), visit)
    return found


@pytest.mark.parametrize("title", QUERIES)
def test_what_is_asked_for_exists(series: dict[str, set[str]], title: str) -> None:
    """Each metric, and each label that it is selected by."""
    asked = selectors(QUERIES[title])
    assert asked
    for one in asked:
        there = (series | OF_PROMETHEUS).get(one.name)
        assert there is not None, f"/metrics has no {one.name}"
        labels = {matcher.name for matcher in one.matchers.matchers}
        assert labels <= there | TARGET_LABELS, f"{one.name} has the labels {there}"


@pytest.mark.parametrize("title", QUERIES)
def test_what_results_are_grouped_by_exists(series: dict[str, set[str]], title: str) -> None:
    """Otherwise everything would be one line without a name."""
    labels = set(TARGET_LABELS)
    for one in selectors(QUERIES[title]):
        labels |= (series | OF_PROMETHEUS)[one.name]
    grouped = re.findall(r"\bby \(([^)]*)\)", QUERIES[title])
    assert {name.strip() for names in grouped for name in names.split(",")} <= labels


def test_counters_are_never_shown_as_they_are() -> None:
    """A counter means something by its rate or its increase."""
    for query in QUERIES.values():
        for name in re.findall(r"\b(\w+_total|\w+_bucket)\b", query):
            assert re.search(rf"(rate|increase)\({name}\b", query), query


def test_values_that_alerts_wait_for_are_there_from_the_start(series: dict[str, set[str]]) -> None:
    """Prometheus sees no increase in a series that begins with 1."""
    assert series["echoless_rejects_total"] == {"error"}
    assert series["echoless_elections_total"] == {"kind"}
    assert series["echoless_faults_total"] == {"action"}


def test_each_alert_says_what_to_do_and_is_on_the_page() -> None:
    """In the rule, and in a row of the page."""
    page = (MONITORING / "README.md").read_text()
    rows = set(re.findall(r"^\| `(Echoless\w+)` \|", page, re.MULTILINE))
    assert rows == {rule["alert"] for rule in rules()}
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "remedy"}


def test_panels_neither_overlap_nor_share_an_id() -> None:
    """Grafana would move them, and mix up what was changed."""
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        columns = range(place["x"], place["x"] + place["w"])
        cells = {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}
        assert max(columns) < 24
        assert not taken & cells, panel["title"]
        taken |= cells
