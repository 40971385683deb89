"""The plan of an ingest: decided once, for every run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from echoless.pipeline.exactly_once.local_files import LocalFiles
from echoless.pipeline.ingest.plan import (
    FileBatch,
    IngestPlan,
    SourceFile,
    check_in_order,
    check_unchanged,
)
from echoless.pipeline.ingest.settings import IngestError, IngestSettings

SETTINGS = IngestSettings(format="csv", topic="orders", reader_options={}, batch_bytes=100)


def _file(name: str, size: int = 60, modified_ms: int = 1) -> SourceFile:
    return SourceFile(path=name, bytes=size, modified_ms=modified_ms)


def _names(plan: IngestPlan) -> list[list[str]]:
    return [[one.path for one in batch.files] for batch in plan.batches]


def test_an_option_without_effect_is_refused() -> None:
    """A line of JSON is stored as it is, so that values over several lines would be torn in silence."""
    lines = replace(SETTINGS, format="json", reader_options={"multiLine": "true"})
    with pytest.raises(IngestError, match=r"multiLine: has no effect on json.*wholetext=true"):
        lines.check_reader_options()
    replace(lines, reader_options={"wholeText": "true"}).check_reader_options()
    replace(lines, format="csv").check_reader_options()


def test_files_are_cut_into_batches_the_oldest_first(tmp_path: Path) -> None:
    """A batch takes files up to its size, and at least one."""
    plan = IngestPlan(LocalFiles(tmp_path))
    late, large = _file("a", 10, modified_ms=9), _file("b", 500, modified_ms=2)
    plan.add([late, large, _file("d", 30), _file("c", 40)], SETTINGS)
    assert _names(plan) == [["c", "d"], ["b"], ["a"]]


def test_in_order_a_batch_is_one_file(tmp_path: Path) -> None:
    """Spark would otherwise read larger files first."""
    plan = IngestPlan(LocalFiles(tmp_path))
    plan.add([_file("b", 1), _file("a", 2)], replace(SETTINGS, in_order=True))
    assert _names(plan) == [["a"], ["b"]]


def test_a_later_run_finds_the_plan_and_adds_to_it(tmp_path: Path) -> None:
    """A file is planned once; what is done is not done again."""
    first = IngestPlan(LocalFiles(tmp_path))
    first.add([_file("a"), _file("b")], SETTINGS)
    batch = first.next_batch()
    assert batch is not None
    first.finish(batch)
    second = IngestPlan(LocalFiles(tmp_path))
    second.refresh()
    second.add([_file("b"), _file("a"), _file("c")], SETTINGS)
    assert _names(second) == [["a"], ["b"], ["c"]]
    assert second.next_batch() == second.batches[1]
    assert second.files_waiting == 2


def test_of_two_runs_at_once_one_plans(tmp_path: Path) -> None:
    """The slower one takes what the faster one has written, and plans the rest: its run may end after these."""
    one, other = IngestPlan(LocalFiles(tmp_path)), IngestPlan(LocalFiles(tmp_path))
    one.add([_file("a"), _file("b")], SETTINGS)
    other.add([_file("b"), _file("c")], SETTINGS)
    assert _names(other) == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize(
    ("listing", "reason"),
    [
        ([], "a is gone"),
        ([_file("a", 61)], "a has changed"),
        ([_file("a", 60, 2)], "a has changed"),
    ],
)
def test_a_file_must_be_as_it_was_planned(listing: list[SourceFile], reason: str) -> None:
    """Its rows would otherwise not be those that are perhaps stored in part."""
    with pytest.raises(IngestError, match=reason):
        check_unchanged(FileBatch(number=0, files=(_file("a"),)), listing)


def test_settings_are_those_of_the_first_run(tmp_path: Path) -> None:
    """Other columns would give other rows; only how much is planned at once may change."""
    plan = IngestPlan(LocalFiles(tmp_path))
    assert plan.agree(SETTINGS) is None
    kept = plan.begin(SETTINGS.with_schema("id int"))
    assert plan.agree(replace(SETTINGS, batch_bytes=7)) == kept
    assert plan.begin(SETTINGS) == kept
    with pytest.raises(IngestError, match="begun with key_column None, not 'id'"):
        plan.agree(replace(SETTINGS, key_column="id"))
    with pytest.raises(IngestError, match="begun with schema 'id int', not 'id long'"):
        plan.agree(SETTINGS.with_schema("id long"))


def test_another_name_or_ledger_is_refused(tmp_path: Path) -> None:
    """Their sink would not know what is stored, and store it again. Checkpoints of earlier versions have neither."""
    earlier = IngestPlan(LocalFiles(tmp_path / "earlier"))
    earlier.begin(SETTINGS)
    named = replace(SETTINGS, name="ingest", ledger="")
    assert earlier.agree(named) is not None
    plan = IngestPlan(LocalFiles(tmp_path / "now"))
    plan.begin(named)
    with pytest.raises(IngestError, match="begun with name 'ingest', not 'other'"):
        plan.agree(replace(named, name="other"))
    with pytest.raises(IngestError, match="begun with ledger '', not '/ledger'"):
        plan.agree(replace(named, ledger="/ledger"))


def test_files_planned_together_cannot_be_written_in_order() -> None:
    """The first run ended before it recorded its settings; Spark would read the larger file first."""
    batch = FileBatch(number=0, files=(_file("a"), _file("b")))
    check_in_order(batch, SETTINGS)
    with pytest.raises(IngestError, match="without --in-order planned it"):
        check_in_order(batch, replace(SETTINGS, in_order=True))
