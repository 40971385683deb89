"""A mirror's work after its command line is read: checks of both clusters, then copying."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from echoless.client.connection_errors import ConnectionFailedError
from echoless.client.security import Security
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.sink import ExactlyOnceSink
from echoless.pipeline.kafka_connector import ConnectorError
from echoless.pipeline.mirror.clusters import (
    MirrorError,
    TargetTopics,
    check_different,
    choose_topics,
    partition_counts,
    reads_what_it_writes,
    with_exclusion,
)
from echoless.pipeline.mirror.group_mirror import GroupMirrorPlan, run_group_mirror
from echoless.pipeline.mirror.group_sync import GroupSync
from echoless.pipeline.mirror.mirror import MirrorPlan, Preparation, read_source, write_stream
from echoless.pipeline.mirror.offsets import is_begun, lag_of
from echoless.pipeline.mirror.settings_sync import SettingsSync
from echoless.pipeline.streaming.counted_writer import CountedWriter
from echoless.pipeline.streaming.figures import StreamFigures
from echoless.pipeline.streaming.job import Job, fail
from echoless.pipeline.streaming.locations import default_ledger
from echoless.pipeline.streaming.run import StreamRun
from echoless.pipeline.streaming.session import open_kafka_session


@dataclass(slots=True, frozen=True, kw_only=True)
class MirrorTarget:
    """The cluster to write."""

    servers: str
    options: Mapping[str, str]
    """Options of the sink, besides the servers."""
    security: Security
    topics: TargetTopics
    settings: SettingsSync | None = None
    """Copies the settings of topics; None: the target's defaults stay."""


def copy_with_group(
    plan: GroupMirrorPlan, target: MirrorTarget, *, metrics_listen: str | None
) -> None:
    """Checks the clusters, and copies with a group's position. Raises `typer.Exit` on failure."""
    name = plan.group
    try:
        _check_clusters(plan, target)
    except (MirrorError, ConnectionFailedError) as error:
        fail(f"{name}: {error}")
    job = Job(kind="mirror", name=name, metrics_listen=metrics_listen, figures=StreamFigures())
    job.run(lambda job, _: run_group_mirror(job, plan, target.topics), lambda _, __: ())


def copy_with_spark(
    plan: MirrorPlan,
    target: MirrorTarget,
    *,
    name: str,
    ledger: str | None,
    master: str | None,
    metrics_listen: str | None,
    groups: GroupSync | None = None,
) -> None:
    """Checks the clusters, and copies with a checkpoint. Raises `typer.Exit` on failure."""
    options = {"kafka.bootstrap.servers": target.servers, **target.options}
    try:
        sink = ExactlyOnceSink(options, name=name, ledger=ledger or default_ledger(plan.checkpoint))
        _check_clusters(plan, target)
        session = open_kafka_session(f"echoless mirror {name}", master=master)
    except (MirrorError, ConnectionFailedError, ConnectorError, SinkError) as error:
        fail(f"{name}: {error}")

    def work(job: Job, writer: CountedWriter) -> None:
        preparation = Preparation(plan, target.topics.ensure)

        def tick() -> None:
            job.line.update()
            if target.settings is not None:
                target.settings.sync_if_due(lambda: preparation.topics)
            if groups is not None:
                groups.sync_if_due()

        def written(frame: DataFrame, batch_id: int) -> None:
            if groups is not None:
                following = frame.sparkSession, plan.checkpoint, batch_id + 1
                groups.note_batch(preparation.reached, lambda: not is_begun(*following))

        run = StreamRun(
            preparation,
            writer,
            job.stop,
            figures=job.figures,
            on_tick=tick,
            lag_of=lag_of,
            on_resume=lambda batch_id: job.say(
                f"continues at batch {batch_id} of {plan.checkpoint}"
            ),
            on_written=written,
        )
        try:
            run.run(write_stream(read_source(session, plan), plan))
        finally:
            if groups is not None:
                groups.sync_at_end()

    job = Job(kind="mirror", name=name, metrics_listen=metrics_listen, figures=StreamFigures())
    job.run(work, sink.write)


def _check_clusters(plan: MirrorPlan | GroupMirrorPlan, target: MirrorTarget) -> None:
    """Checks topics and clusters before anything is copied. Raises `MirrorError`, `ConnectionFailedError`."""
    counts = partition_counts(plan.source, plan.source_security)
    chosen = choose_topics(counts, list(plan.topics), plan.pattern, plan.exclude)
    whole = None if plan.pattern is None else with_exclusion(plan.pattern, plan.exclude)
    if reads_what_it_writes(chosen, whole, plan.prefix):
        check_different(
            plan.source,
            target.servers,
            source_security=plan.source_security,
            target_security=target.security,
        )
    target.topics.ensure({plan.prefix + topic: counts[topic] for topic in chosen})
