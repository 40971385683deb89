"""The plan of a soak: the same for the same seed, and suited to the brokers."""

from __future__ import annotations

from itertools import islice

from tests.soak.plan import IN_A_CLUSTER, ON_A_BROKER, ON_REQUESTS, Step, make_plan

_TOPICS = ("one", "two", "three")


def _steps(seed: int, count: int, broker_ids: tuple[int, ...]) -> list[Step]:
    return list(islice(make_plan(seed, _TOPICS, broker_ids, ["two"]), count))


def test_a_seed_is_a_plan() -> None:
    """A failing run can be reproduced, as far as the machine allows."""
    assert _steps(7, 100, (1, 2, 3)) == _steps(7, 100, (1, 2, 3))
    assert _steps(7, 100, (1, 2, 3)) != _steps(8, 100, (1, 2, 3))


def test_every_kind_comes_before_any_comes_again() -> None:
    """A short run has them all."""
    kinds = ON_REQUESTS + ON_A_BROKER
    assert {step.kind for step in _steps(1, len(kinds), (1,))} == set(kinds)


def test_only_a_cluster_has_links_and_sessions() -> None:
    """A link is cut to another broker, never to the broker itself."""
    assert not {step.kind for step in _steps(1, 200, (1,))} & set(IN_A_CLUSTER)
    cuts = [step for step in _steps(1, 200, (1, 2, 3)) if step.kind == "cut_replica_link"]
    assert cuts
    assert all(step.action["broker_id"] not in (step.broker_id, 0) for step in cuts)


def test_what_comes_behind_a_lost_answer_is_sent_to_clients_that_take_it() -> None:
    """The other clients would treat the broker as broken, and are made to wait."""
    lossy = [step for step in _steps(1, 500, (1,)) if step.kind.startswith("drop_")]
    assert {step.match["topic"] for step in lossy if step.action.get("later") == "send"} == {"two"}
