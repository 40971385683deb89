"""The last question of a history of transactions: how far its copiers came."""

from __future__ import annotations

from random import Random

from echoless.broker.config.internal_topics import CONSUMER_OFFSETS
from tests.simulation.faults import COORDINATOR
from tests.simulation.hazards.transaction_stage import SETTINGS
from tests.simulation.observations import Spot
from tests.simulation.stage import SPOT, Stage
from tests.simulation.transactions.copier import Copier
from tests.simulation.transactions.history import INPUT, TransactionHistory
from tests.simulation.transactions.port import KafkaPort
from tests.simulation.transactions.writer import Habits


def test_it_waits_for_a_coordinator_that_doubts_its_session() -> None:
    """One that was cut off proves its session anew, for seconds after it has returned (seed 5005787)."""
    settings = {**SETTINGS, "zookeeper_session_timeout_ms": 6000}
    with Stage(brokers=2, **settings) as stage:
        history = TransactionHistory(stage.cluster, Random(1), [SPOT])
        history.watch()
        port = KafkaPort(stage.cluster.new_client("copier"), history.seen, 4.0)
        habits = Habits(generation=2, timeout_ms=60_000, patience_s=30.0, pause_s=0.0)
        history.writers.append(Copier(port, "a", habits, INPUT, INPUT))
        stage.until(lambda: history.leader_of(Spot(CONSUMER_OFFSETS, 0)) is not None)
        leader = stage.machines[stage.cluster.state_of(Spot(CONSUMER_OFFSETS, 0))["leader"]]
        assert leader.broker is not None
        member = leader.broker.services.cluster
        stage.until(lambda: member.is_proved)
        stage.part(leader, COORDINATOR)
        stage.until(lambda: not member.is_proved)
        stage.join(leader, COORDINATOR)
        assert history.committed_inputs() == {tuple(INPUT): 0}
