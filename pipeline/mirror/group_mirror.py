"""Mirror with its position in a consumer group of the source: a copier, without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from echoless.client.connection_errors import ConnectionFailedError
from echoless.client.copier.copier import Copier, CopierFigures
from echoless.client.copier.position import PositionError
from echoless.client.copier.records import to_same_partition
from echoless.client.copier.settings import CopierSettings, Start
from echoless.client.errors import ProducerError
from echoless.client.security import Security
from echoless.client.settings import Settings
from echoless.pipeline.mirror.clusters import MirrorError, TargetTopics, with_exclusion
from echoless.pipeline.streaming.figures import BatchFigures
from echoless.pipeline.streaming.job import Job
from echoless.pipeline.streaming.run import StreamError

GROUP_BATCH_RECORDS_DEFAULT: Final = 10_000
_POLL_S: Final = 0.2
"""Seconds between two checks of the request to stop."""


@dataclass(slots=True, frozen=True, kw_only=True)
class GroupMirrorPlan:
    """Parameters of a mirror with a group."""

    source: str
    target: str
    source_security: Security
    producer: Settings
    group: str
    topics: tuple[str, ...]
    pattern: str | None
    exclude: str | None = None
    prefix: str
    once: bool
    starting_offsets: Start
    bare_offsets: bool
    batch_records: int
    interval_s: float

    def settings(self) -> CopierSettings:
        """Returns the settings of its copier."""
        return CopierSettings(
            group=self.group,
            topics=self.topics,
            pattern=None if self.pattern is None else with_exclusion(self.pattern, self.exclude),
            ends=self.once,
            starting_offsets=self.starting_offsets,
            bare_offsets=self.bare_offsets,
            commit_interval_s=self.interval_s,
            commit_records_max=self.batch_records,
        )


def run_group_mirror(job: Job, plan: GroupMirrorPlan, target_topics: TargetTopics) -> None:
    """Copies until it is done or stopped. Raises `StreamError`."""
    try:
        asyncio.run(_run(job, plan, target_topics))
    except (ProducerError, PositionError, MirrorError, ConnectionFailedError) as error:
        raise StreamError(str(error)) from error


async def _run(job: Job, plan: GroupMirrorPlan, target_topics: TargetTopics) -> None:
    async def prepare(topics: Mapping[str, int]) -> None:
        needed = {plan.prefix + topic: count for topic, count in topics.items()}
        await asyncio.to_thread(target_topics.ensure, needed)

    progress = _Progress(job)
    copier = Copier(
        plan.source,
        plan.target,
        plan.settings(),
        to_same_partition(plan.prefix),
        source_security=plan.source_security,
        producer_settings=plan.producer,
        on_commit=progress.note,
        on_topics=prepare,
    )
    progress.copier = copier
    watching = asyncio.create_task(_watch(job, copier))
    try:
        await copier.run()
    finally:
        watching.cancel()


async def _watch(job: Job, copier: Copier) -> None:
    """Passes on the request to stop, and keeps the line on the terminal up to date."""
    while not job.stop.is_made:
        job.line.update()
        await asyncio.sleep(_POLL_S)
    copier.stop()


class _Progress:
    """Translates a copier's figures into those of a stream: the records of a commit are a batch."""

    def __init__(self, job: Job) -> None:
        self._figures = job.figures
        self._records = self._bytes = 0
        self.copier: Copier | None = None

    def note(self, figures: CopierFigures) -> None:
        """Adds the work since the last commit."""
        records, size = figures.records - self._records, figures.bytes - self._bytes
        self._records, self._bytes = figures.records, figures.bytes
        if records:
            batch = BatchFigures(batch_id=figures.commits, records=records, bytes=size, repeats=0)
            self._figures.add(batch)
        assert self.copier is not None
        lag = self.copier.lag().items()
        self._figures.lag = {f"{topic}-{index}": count for (topic, index), count in lag}
