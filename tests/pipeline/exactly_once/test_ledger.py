"""The ledger.

Entries as `docs/formats/ledger.md` shows them, created once, and read by later attempts.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from echoless.client.sequencer import Identity
from echoless.client.state import ProducerState
from echoless.pipeline.exactly_once.batch_record import BatchRecord
from echoless.pipeline.exactly_once.entries import (
    Begin,
    End,
    EntryError,
    SequenceRange,
    decode_entry,
    encode_entry,
)
from echoless.pipeline.exactly_once.errors import LedgerError
from echoless.pipeline.exactly_once.ledger import BATCHES_KEPT, Ledger, Recorded
from echoless.pipeline.exactly_once.ledger_identity import identified, open_files
from echoless.pipeline.exactly_once.local_files import LocalFiles
from echoless.pipeline.exactly_once.options import read_options
from tests.pipeline.exactly_once.attempts import NAME, QUERY, location

PAGE = Path(__file__).parents[3] / "docs/formats/ledger.md"
IDENTITY = Identity(4000, 0)


def shown() -> list[str]:
    return re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("index", [0, 1])
def test_entries_are_as_the_page_shows_them(index):
    """Every field, and no other."""
    text = shown()[index]
    entry = decode_entry(text.encode())
    assert json.loads(encode_entry(entry)) == json.loads(text)
    assert decode_entry(encode_entry(entry)) == entry


def begin(*, partition: int = 0) -> Begin:
    sequence_range = SequenceRange(
        topic="t", partition=partition, sequence=0, rows_before=0, log_end_offset=9
    )
    return Begin(
        query_id=QUERY,
        cluster_id="c",
        identity=IDENTITY,
        timestamp_ms=1,
        partition_counts={"t": 2},
        sequence_ranges=(sequence_range,),
    )


def end() -> End:
    state = ProducerState(producer_id=4000, producer_epoch=0)
    return End(query_id=QUERY, cluster_id="c", rows=0, targets=(), state=state)


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(tmp_path)


def test_of_two_attempts_the_faster_ones_entry_holds(files):
    """The slower one continues with it."""
    slow, fast = Ledger(files, location()), Ledger(files, location())
    assert fast.add(begin(partition=0)) is Recorded.BY_US
    assert fast.add(begin(partition=1)) is Recorded.BY_US
    assert slow.add(begin(partition=1)) is Recorded.BY_ANOTHER
    assert slow.begins == fast.begins == [begin(partition=0), begin(partition=1)]


def test_an_end_is_found_by_whoever_comes_later(files):
    """The next batch continues from it."""
    ledger = Ledger(files, location())
    ledger.add(begin())
    ledger.add(end())
    assert Ledger(files, location()).end == end()
    assert Ledger(files, location(1)).previous == end()


def test_old_batches_are_cleaned_away(files, tmp_path):
    """Those that a replay may need stay."""
    for batch_id in range(BATCHES_KEPT + 5):
        ledger = Ledger(files, location(batch_id))
        ledger.add(begin())
        ledger.add(end())
        ledger.clean()
        BatchRecord(files, NAME, QUERY, batch_id).agree(2)
    for directory in ("partition-00000", "batches"):
        names = {path.name[:26] for path in (tmp_path / NAME / directory).iterdir()}
        assert names == {f"batch-{n:020}" for n in range(5, BATCHES_KEPT + 5)}


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "kind": "more"}', shown()[0][:200]]
)
def test_what_is_no_entry_is_refused(text):
    """A damaged ledger is not guessed at."""
    with pytest.raises(EntryError):
        decode_entry(text.encode())


def test_a_damaged_entry_is_named(files):
    """An operator can look at it."""
    files.create(f"{location().directory}/batch-{0:020}.0.json", b"{")
    with pytest.raises(LedgerError, match=r"partition-00000/batch-00000000000000000000\.0\.json"):
        Ledger(files, location())


def test_the_record_of_a_batch_holds_its_division(files):
    """The record of another query has none."""
    BatchRecord(files, NAME, QUERY, 3).agree(8)
    BatchRecord(files, NAME, QUERY, 3).agree(8)
    with pytest.raises(
        LedgerError, match="has 4 Spark partitions now and had 8 before: rows would"
    ):
        BatchRecord(files, NAME, QUERY, 3).agree(4)
    with pytest.raises(LedgerError, match="rows may have been stored twice"):
        BatchRecord(files, NAME, QUERY, 3).agree(4, is_late=True)
    with pytest.raises(LedgerError, match="belongs to query query"):
        BatchRecord(files, NAME, "other", 3).agree(8)


def test_a_new_query_in_an_old_ledger_is_refused_beforehand(files):
    """The record of its first batch is cleaned away, and a new Spark partition would see nothing."""
    for batch_id in range(BATCHES_KEPT + 5):
        BatchRecord(files, NAME, QUERY, batch_id).agree(2)
    with pytest.raises(LedgerError, match="the ledger is at batch 14 already"):
        BatchRecord(files, NAME, "other", 0).agree(3)


def test_a_ledger_without_the_batch_before_is_an_old_copy(files):
    """If the sink is given each batch of the query; in foreachBatch others may have been written elsewhere."""
    BatchRecord(files, NAME, QUERY, 3).agree(2)
    for batch_id in (3, 4):
        BatchRecord(files, NAME, QUERY, batch_id).check_not_lost(has_every_batch=True)
    later = BatchRecord(files, NAME, QUERY, 5)
    later.check_not_lost(has_every_batch=False)
    with pytest.raises(LedgerError, match="last batch in the ledger is 3: the ledger is an old"):
        later.check_not_lost(has_every_batch=True)


def test_a_batch_without_tasks_is_recorded(files):
    """It does not make the ledger look old, and holds up no batch that has tasks when it is run again."""
    BatchRecord(files, NAME, QUERY, 3).agree(2)
    BatchRecord(files, NAME, "", 4).note()
    BatchRecord(files, NAME, QUERY, 5).check_not_lost(has_every_batch=True)
    BatchRecord(files, NAME, QUERY, 4).agree(2, is_late=True)


def test_a_ledger_of_earlier_batches_without_tasks_is_not_taken_for_an_old_copy(files):
    """They left no record, but this file."""
    BatchRecord(files, NAME, QUERY, 3).agree(2)
    files.create(f"{NAME}/batches/in-use.json", b'{"version": 1}')
    BatchRecord(files, NAME, QUERY, 9).check_not_lost(has_every_batch=True)


def test_a_ledger_that_tasks_do_not_see_is_refused(tmp_path):
    """The same path on another machine is another ledger."""
    options = {"kafka.bootstrap.servers": "localhost:9092"}
    here = identified(read_options(options, name=NAME, ledger=str(tmp_path / "here")))
    assert identified(here).ledger_id == here.ledger_id
    open_files(here)
    (tmp_path / "here").rename(tmp_path / "there")
    with pytest.raises(LedgerError, match="not the driver's ledger on this machine"):
        open_files(here)
