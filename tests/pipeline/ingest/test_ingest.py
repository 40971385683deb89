"""Files become records, in a Spark that the tests share."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from echoless.protocol.records import Record
from tests.pipeline.exactly_once.broker_thread import BrokerThread
from tests.pipeline.stored_records import count_stored, stored_records
from tests.pipeline.stores.servers import BUCKET, versitygw
from tests.toolchain import require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from echoless.pipeline.streaming.counted_writer import WriteReport
    from echoless.pipeline.streaming.job import Job

pytestmark = pytest.mark.spark

_PARTITIONS = 2
_SPLIT_BYTES = 2000


class Ingests:
    """Runs over the files of one directory, all on one checkpoint."""

    def __init__(self, spark: SparkSession, address: str, directory: Path) -> None:
        self.spark = spark
        self.address = address
        self.files = directory / "files"
        self.files.mkdir()
        self._checkpoint = directory / "checkpoint"

    def job(self) -> Job:
        from echoless.pipeline.streaming.figures import StreamFigures
        from echoless.pipeline.streaming.job import Job

        return Job(kind="ingest", name="ingest", metrics_listen=None, figures=StreamFigures())

    def run(
        self,
        *,
        job: Job | None = None,
        watch_s: float | None = None,
        write: Callable[[DataFrame, int], Sequence[WriteReport]] | None = None,
        **settings: Any,
    ) -> None:
        """Runs until all files are done. `settings`: fields of `IngestSettings`."""
        from echoless.pipeline.exactly_once.local_files import LocalFiles
        from echoless.pipeline.ingest.plan import IngestPlan
        from echoless.pipeline.ingest.run import Ingest
        from echoless.pipeline.ingest.settings import IngestSettings

        given = {"reader_options": {}, "split_bytes": _SPLIT_BYTES, **settings}
        ingest = Ingest(
            session=self.spark,
            plan=IngestPlan(LocalFiles(self._checkpoint)),
            settings=IngestSettings(topic="rows", **given),
            paths=[str(self.files)],
            watch_s=watch_s,
        )
        (job or self.job()).run(ingest.run, write or self.write)

    def write(self, frame: DataFrame, batch_id: int) -> Sequence[WriteReport]:
        """Through the real sink."""
        from echoless.pipeline.exactly_once.sink import ExactlyOnceSink

        ledger = str(self._checkpoint / "ledger")
        sink = ExactlyOnceSink(self.address, name="ingest", ledger=ledger, topic="rows")
        return sink.write(frame, batch_id)

    def stored(self) -> list[Record]:
        """The records of all partitions, one after the other."""
        return [
            one for part in range(_PARTITIONS) for one in stored_records(self.address, "rows", part)
        ]


@pytest.fixture
def ingests(spark: SparkSession, tmp_path: Path) -> Iterator[Ingests]:
    require("java")
    with BrokerThread(tmp_path / "broker", num_partitions=_PARTITIONS) as broker:
        yield Ingests(spark, broker.address, tmp_path)


def test_parquet_rows_become_json(ingests: Ingests) -> None:
    """By default the value is the whole row, nulls included; names may have any characters."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"id": [1, 2], "a name": ["x", None], "nested": [{"n": 1}, {"n": 2}]})
    pq.write_table(table, ingests.files / "one [1].parquet")
    ingests.run(format="parquet")
    assert sorted(json.loads(one.value or b"")["id"] for one in ingests.stored()) == [1, 2]
    rows = {json.loads(one.value or b"")["id"]: one for one in ingests.stored()}
    assert json.loads(rows[2].value or b"") == {"id": 2, "a name": None, "nested": {"n": 2}}
    assert rows[1].key is None


def test_a_json_value_over_several_lines(ingests: Ingests) -> None:
    """`wholetext` makes each file one value; the reader's own option for it would have no effect, and is refused."""
    import typer

    values = [json.dumps({"id": number}, indent=1) for number in range(3)]
    for number, value in enumerate(values):
        (ingests.files / f"{number}.json").write_text(value)
    with pytest.raises(typer.Exit):
        ingests.run(format="json", reader_options={"multiLine": "true"})
    ingests.run(format="json", reader_options={"wholetext": "true"})
    assert sorted((one.value or b"").decode() for one in ingests.stored()) == values


def test_a_checkpoint_on_s3_is_reached_as_spark_reaches_it(
    ingests: Ingests, tmp_path: Path
) -> None:
    """Plan and ledger, by the settings that Spark's own connector reads."""
    from echoless.pipeline.ingest.command import ingest_command

    (ingests.files / "rows.json").write_text('{"n": 1}\n')
    hadoop = ingests.spark.sparkContext._jsc.hadoopConfiguration()
    with versitygw(tmp_path / "s3") as store:
        given = {
            "fs.s3a.endpoint": store.options["endpoint"],
            "fs.s3a.path.style.access": "true",
            "fs.s3a.access.key": store.options["access_key_id"],
            "fs.s3a.secret.key": store.options["secret_access_key"],
        }
        for name, value in given.items():
            hadoop.set(name, value)
        try:
            ingest_command(
                [str(ingests.files)],
                file_format="json",
                target=ingests.address,
                topic="rows",
                checkpoint=f"s3a://{BUCKET}/ingest",
            )
        finally:
            for name in given:
                hadoop.unset(name)
    assert [one.value for one in ingests.stored()] == [b'{"n": 1}']
    kept = {path.name for path in (tmp_path / "s3/data" / BUCKET / "ingest").iterdir()}
    assert kept == {"echoless-ingest", "echoless-ledger"}


def test_avro_rows_are_stored_once_after_a_crash_before_the_mark(ingests: Ingests) -> None:
    """In the same pieces as before, typed as in the file; and the next run says where it continues."""
    require("java", "spark-avro")
    frame = ingests.spark.range(3000).selectExpr("id", "concat('row ', id) AS name")
    frame.coalesce(1).write.format("avro").mode("append").save(str(ingests.files))

    def write_and_crash(frame: DataFrame, batch_id: int) -> Sequence[WriteReport]:
        ingests.write(frame, batch_id)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingests.run(format="avro", key_column="id", write=write_and_crash)
    job = ingests.job()
    ingests.run(format="avro", key_column="id", job=job)
    assert job.figures.repeats == job.figures.records == 3000
    rows = {one.key: json.loads(one.value or b"") for one in ingests.stored()}
    assert rows == {b"%d" % n: {"id": n, "name": f"row {n}"} for n in range(3000)}
    assert len(ingests.stored()) == 3000


def test_csv_columns_become_what_they_are_named_for(ingests: Ingests) -> None:
    """Key, value, partition and timestamp, from text; a file in several pieces has each row once."""
    lines = [
        f"{number},{number % 2},value {number},{1_795_000_000_000 + number}"
        for number in range(500)
    ]
    (ingests.files / "a.csv").write_text("\n".join(["id,p,v,t", *lines, ""]))
    ingests.run(
        format="csv",
        key_column="id",
        value_column="v",
        partition_column="p",
        timestamp_column="t",
        schema="id string, p int, v string, t long",
    )
    for partition in range(_PARTITIONS):
        stored = stored_records(ingests.address, "rows", partition)
        wanted = [
            (b"%d" % number, b"value %d" % number, 1_795_000_000_000 + number)
            for number in range(partition, 500, 2)
        ]
        assert sorted((one.key, one.value, one.timestamp) for one in stored) == sorted(wanted)


def test_a_row_that_is_too_short_ends_the_ingest(
    ingests: Ingests, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, and if only some columns are used, too: its value would be null, which is a tombstone."""
    import typer

    (ingests.files / "a.csv").write_text("id,p,v\n1,0,one\n2,0\n")
    with pytest.raises(typer.Exit):
        ingests.run(format="csv", key_column="id", value_column="v")
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("ingest: ")
    assert "Malformed CSV record" in last


def test_a_file_that_changes_while_it_is_read_is_refused(ingests: Ingests) -> None:
    """Part of it may be stored; the batch is not done."""
    import typer

    path = _write_numbers(ingests, "a.json", range(20))

    def write_and_change(frame: DataFrame, batch_id: int) -> Sequence[WriteReport]:
        written = ingests.write(frame, batch_id)
        path.write_text('{"n": 20}\n')
        return written

    for _ in range(2):
        with pytest.raises(typer.Exit):
            ingests.run(format="json", write=write_and_change)
    assert _numbers(ingests.stored()) == list(range(20))


def test_json_lines_are_stored_as_they_are(ingests: Ingests) -> None:
    """Not a space is changed; fields are looked up for key and timestamp, and blank lines left out."""
    line = '{"id":7,  "when":"2026-11-21T07:00:00Z", "x":1.50}'
    (ingests.files / "a.json").write_text(f"{line}\n\n" + '{"when":"1795000000123"}\n')
    ingests.run(format="json", key_column="id", timestamp_column="when")
    first, second = sorted(ingests.stored(), key=lambda one: one.timestamp, reverse=True)
    when = datetime(2026, 11, 21, 7, tzinfo=UTC).timestamp() * 1000
    assert (first.key, first.value, first.timestamp) == (b"7", line.encode(), when)
    assert (second.key, second.timestamp) == (None, 1_795_000_000_123)


def test_a_batch_that_was_not_marked_done_stores_nothing_again(ingests: Ingests) -> None:
    """A run that dies after the sink's last acknowledgement leaves only the mark to the next one."""
    import typer

    _write_numbers(ingests, "a.json", range(300))

    def write_and_die(frame: DataFrame, batch_id: int) -> Sequence[WriteReport]:
        from echoless.pipeline.exactly_once.errors import SinkError

        ingests.write(frame, batch_id)
        raise SinkError("dead")

    with pytest.raises(typer.Exit):
        ingests.run(format="json", write=write_and_die)
    job = ingests.job()
    ingests.run(format="json", job=job)
    assert _numbers(ingests.stored()) == list(range(300))
    assert job.figures.repeats == 300


def test_pieces_do_not_depend_on_the_machine(ingests: Ingests) -> None:
    """A batch is divided by the files alone, however many cores Spark has."""
    _write_numbers(ingests, "a.json", range(1000))
    seen = []

    def look(frame: DataFrame, batch_id: int) -> Sequence[WriteReport]:
        seen.append([part for part in frame.rdd.glom().collect() if part])
        frame.write.format("noop").mode("overwrite").save()
        raise _SeenError

    for cores in ("1", "16"):
        ingests.spark.conf.set("spark.sql.leafNodeDefaultParallelism", cores)
        with pytest.raises(_SeenError):
            ingests.run(format="json", write=look)
    ingests.spark.conf.unset("spark.sql.leafNodeDefaultParallelism")
    assert seen[0] == seen[1]
    assert len(seen[0]) > 1


class _SeenError(Exception):
    pass


def test_in_order_rows_stay_in_the_order_of_the_files(ingests: Ingests) -> None:
    """The oldest file first, each from its first row to its last."""
    for age, (name, numbers) in enumerate({"b": range(300), "a": range(300, 900)}.items()):
        path = _write_numbers(ingests, f"{name}.json", numbers)
        os.utime(path, (1_790_000_000 + age, 1_790_000_000 + age))
    ingests.run(format="json", in_order=True)
    for partition in range(_PARTITIONS):
        stored = stored_records(ingests.address, "rows", partition)
        numbers = [json.loads(one.value or b"")["n"] for one in stored]
        assert numbers == sorted(numbers)
    assert _numbers(ingests.stored()) == list(range(900))


def test_watching_takes_files_that_come_later(ingests: Ingests) -> None:
    """It ends on request; a batch that has begun is finished."""
    _write_numbers(ingests, "a.json", range(50))
    job = ingests.job()
    errors: list[BaseException] = []

    def add_then_stop() -> None:
        try:
            _wait(lambda: count_stored(ingests.address, "rows", _PARTITIONS) == 50)
            hidden = _write_numbers(ingests, "_b.json", range(50, 80))
            hidden.rename(ingests.files / "b.json")
            _wait(lambda: count_stored(ingests.address, "rows", _PARTITIONS) == 80)
        except BaseException as error:  # noqa: BLE001  shown by the test's own thread
            errors.append(error)
        finally:
            job.stop.make()

    thread = threading.Thread(target=add_then_stop)
    thread.start()
    ingests.run(format="json", job=job, watch_s=0.05)
    thread.join()
    assert not errors
    assert _numbers(ingests.stored()) == list(range(80))


def _wait(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(1200):
        if holds():
            return
        pause.wait(0.1)
    raise AssertionError("it did not happen in two minutes")


def _write_numbers(ingests: Ingests, name: str, numbers: range) -> Path:
    path = ingests.files / name
    path.write_text("".join(f'{{"n": {number}}}\n' for number in numbers))
    return path


def _numbers(records: list[Record]) -> list[int]:
    return sorted(json.loads(one.value or b"")["n"] for one in records)
