"""The numbers with which each partition of a producer starts: fresh ones, or those of a saved state."""

from __future__ import annotations

from typing import Self

from echoless.client.sequenced_batch import Identity
from echoless.client.sequencer_actions import Start
from echoless.client.settings import DEFAULT_SETTINGS, Settings
from echoless.client.state import PartitionState, ProducerState


class Starts:
    """The starts of one producer under `identity`; `resumed` makes those of a saved state."""

    def __init__(
        self,
        identity: Identity,
        state: ProducerState | None = None,
        settings: Settings = DEFAULT_SETTINGS,
    ) -> None:
        self.identity = identity
        self._is_resumed = state is not None
        self._settings = settings
        saved = state.partitions if state is not None else ()
        self.resumed_states: dict[tuple[str, int], PartitionState] = {
            (one.topic, one.partition): one for one in saved
        }
        """The partitions of the saved state."""
        self._named_topics = {one.topic for one in saved}

    @classmethod
    def resumed(cls, state: ProducerState, settings: Settings) -> Self:
        """The starts of a producer that continues from `state`."""
        return cls(Identity(state.producer_id, state.producer_epoch), state, settings)

    def take(self, topic: str, partition: int) -> Start:
        """The start of one partition, which the caller asks for once.

        The state need not list the partition: an earlier run may have begun with it later.
        """
        saved = self.resumed_states.get((topic, partition))
        if saved is not None:
            return Start(
                identity=Identity(saved.producer_id, saved.producer_epoch),
                next_sequence=saved.next_sequence,
                is_resumed=True,
                asks=self._settings.asks_on_resume,
            )
        is_unnamed = self._is_unnamed(topic) and not self._settings.resumes_unnamed_topics
        return Start(
            identity=self.identity,
            is_resumed=self._is_resumed,
            asks=self._is_resumed and (self._settings.asks_on_resume or is_unnamed),
            is_unnamed=is_unnamed,
        )

    def _is_unnamed(self, topic: str) -> bool:
        """Whether the state names topics, but not this one."""
        return bool(self._named_topics) and topic not in self._named_topics
