"""The script of classic groups: random requests of members of a group, played in step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.oracle.game import Game
from tests.oracle.groups.chooser import TOPICS
from tests.oracle.groups.differences import NAMES
from tests.oracle.groups.game import GroupsGame
from tests.oracle.groups.step import Step
from tests.oracle.script import History, Script, Table, Topic, Variant
from tests.oracle.side import Sides, wait_for_coordinator


class GroupsScript(Script[Step]):
    """One group for each history, on the same two topics."""

    name = "groups"
    differences = NAMES
    kafka_settings: Mapping[str, str] = {
        "group.min.session.timeout.ms": "1000",
        "num.io.threads": "1",
        "auto.create.topics.enable": "false",
        "log.cleaner.enable": "false",
    }
    variants = (
        Variant(
            settings={
                "group_min_session_timeout_ms": "1000",
                "offsets_topic_num_partitions": "1",
                "auto_create_topics_enable": "false",
            }
        ),
    )
    lanes = 12
    together_max = 60

    def games(self, histories: Sequence[History[Step]], table: Table) -> Sequence[GroupsGame]:
        return [GroupsGame(history, table.label) for history in histories]

    def topics(self, games: Sequence[Game[Step]]) -> Mapping[str, Topic]:
        return dict.fromkeys(TOPICS, Topic(2))

    async def wait_until_ready(self, sides: Sides) -> None:
        for side in sides:
            await wait_for_coordinator(side)
