"""The script of fetch sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tests.oracle.game import Game
from tests.oracle.script import History, Restart, Script, Table, Topic, Variant
from tests.oracle.sessions.game import SessionsGame
from tests.oracle.sessions.step import MAIN, PARTITIONS, Step

_SLOTS = "10000"
"""No session is evicted: Kafka's clock cannot be set, and its shards fill in turn."""


class SessionsScript(Script[Step]):
    """A client with three sessions for each history."""

    name = "sessions"
    differences = ()
    kafka_settings: Mapping[str, str] = {
        "auto.create.topics.enable": "false",
        "log.cleaner.enable": "false",
        "log.retention.ms": "-1",
        "max.incremental.fetch.session.cache.slots": _SLOTS,
    }
    variants = (
        Variant(
            restart=Restart.CLEAN,
            settings={
                "auto_create_topics_enable": "false",
                "log_retention_ms": "-1",
                "max_incremental_fetch_session_cache_slots": _SLOTS,
            },
        ),
    )
    lanes = 6
    together_max = 100

    def games(self, histories: Sequence[History[Step]], table: Table) -> Sequence[SessionsGame]:
        return [SessionsGame(history, table.label) for history in histories]

    def topics(self, games: Sequence[Game[Step]]) -> Mapping[str, Topic]:
        return {cast("SessionsGame", game).topic: Topic(PARTITIONS[MAIN]) for game in games}
