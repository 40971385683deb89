"""The script of producers: random produce requests, judged beside two models of a partition."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.oracle.game import Game
from tests.oracle.producers.differences import NAMES
from tests.oracle.producers.game import ProducersGame
from tests.oracle.producers.generate import Generator
from tests.oracle.producers.history import ProducersHistory, Step, TopicKind
from tests.oracle.producers.judge import Judge
from tests.oracle.producers.play import Place
from tests.oracle.producers.reference import KAFKA, Rules, echoless_rules
from tests.oracle.script import History, Restart, Script, Table, Topic, Variant

_KAFKA: Final = {
    "auto.create.topics.enable": "false",
    "producer.id.expiration.check.interval.ms": "86400000",
    "log.cleaner.enable": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesVariant(Variant):
    """A variant, with what its settings mean for the model."""

    rules: Rules
    accepts_unknown: bool


def _variant(restart: Restart, *, accepts_unknown: bool, window: int = 5) -> RulesVariant:
    return RulesVariant(
        restart=restart,
        settings={
            "auto_create_topics_enable": "false",
            "unknown_producer_id": "accept" if accepts_unknown else "reject",
            "producer_state_batches_to_retain": str(window),
        },
        rules=echoless_rules(window=window, accepts_unknown=accepts_unknown),
        accepts_unknown=accepts_unknown,
    )


class ProducersScript(Script[Step]):
    """A few fresh partitions for each history."""

    name = "producers"
    differences = NAMES
    kafka_settings = _KAFKA
    variants: Sequence[RulesVariant] = (
        _variant(Restart.CLEAN, accepts_unknown=True),
        _variant(Restart.KILL, accepts_unknown=False),
        _variant(Restart.KILL, accepts_unknown=True),
        _variant(Restart.LOST_SNAPSHOTS, accepts_unknown=True),
        _variant(Restart.CLEAN, accepts_unknown=False),
        _variant(Restart.KILL, accepts_unknown=True, window=9),
    )
    lanes = 6
    together_max = 250

    def games(self, histories: Sequence[History[Step]], table: Table) -> Sequence[ProducersGame]:
        counts: Counter[TopicKind] = Counter()
        return [self._game(history, table, counts) for history in histories]

    def _game(
        self, history: History[Step], table: Table, counts: Counter[TopicKind]
    ) -> ProducersGame:
        variant = self.variants[history.number % len(self.variants)]
        generated = Generator(
            history.seed,
            history.number,
            now_ms=time.time_ns() // 1_000_000,
            accepts_unknown=variant.accepts_unknown,
        ).generate()
        if history.recorded is not None:
            generated = replace(generated, halves=history.recorded)
        rules = variant.rules if table.is_echoless else KAFKA
        places = _places(generated, counts, table.label)
        lost_snapshots = variant.restart is Restart.LOST_SNAPSHOTS
        return ProducersGame(
            generated, places, Judge(generated, rules), lost_snapshots=lost_snapshots
        )

    def topics(self, games: Sequence[Game[Step]]) -> Mapping[str, Topic]:
        found: dict[str, Topic] = {}
        for game in games:
            assert isinstance(game, ProducersGame)
            for kind, place in zip(game.history.slots, game.places, strict=True):
                found[place.topic] = Topic(place.partition + 1, kind.configs)
        return found


def _places(history: ProducersHistory, counts: Counter[TopicKind], label: str) -> list[Place]:
    """Takes a fresh partition for every slot; `counts` says how many each topic has so far."""
    places: list[Place] = []
    for kind in history.slots:
        places.append(Place(f"{kind.value}-{label}", counts[kind]))
        counts[kind] += 1
    return places
