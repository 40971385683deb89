"""The documents behind the console: the broker as a whole, its clients, producers by page and by client, diagrams."""

from __future__ import annotations

import aiohttp
import pytest

from echoless.broker.admin.callers import Caller
from echoless.broker.admin.overview import add_totals
from echoless.broker.admin.peer_reading import answer_peer
from echoless.broker.admin.readings import Readings
from echoless.broker.authentication.admin_tokens import Role
from echoless.broker.decisions import decisions as decisions_module
from echoless.broker.faults.action import TYPES, Action
from echoless.broker.faults.fields import RuleError
from echoless.protocol.dedup import BatchMetadata, ProducerEntry
from echoless.protocol.native.admin_read import AdminRead
from tests.broker.admin.admin_client import AdminClient
from tests.broker.admin.fake_broker import FakeBroker
from tests.support.in_process import Running


def remember(admin: AdminClient, *producer_ids: int) -> None:
    producers = admin.broker.partitions["orders", 0].log.producers
    for producer_id in producer_ids:
        batch = BatchMetadata(1, 1, 1, 0, 0)
        producers.put(producer_id, ProducerEntry(0, 0, 0, (batch,)))


async def test_producers_are_paged_by_id(admin: AdminClient) -> None:
    """Appends in between change the order of age, and no page."""
    remember(admin, 9, 3, 7, 1, 5)
    seen, after = [], -1
    while True:
        _, document = await admin.get(f"/producers/orders/0?limit=2&after={after}")
        if not document["producers"]:
            break
        seen += [one["producer_id"] for one in document["producers"]]
        after = seen[-1]
        remember(admin, 1)
    assert seen == [1, 3, 5, 7, 9]
    assert (document["count"], document["retained"]) == (5, 5)


async def test_a_producer_is_shown_with_its_client(admin: AdminClient) -> None:
    """None is known of a producer that has sent nothing since the start."""
    remember(admin, 7, 8)
    admin.decider.append(producer_id=7)
    _, document = await admin.get("/producers/orders/0?after=-1")
    clients = {
        one["producer_id"]: (one["client_id"], one["address"]) for one in document["producers"]
    }
    assert clients == {7: ("billing", "10.0.0.1:5000"), 8: (None, None)}


async def test_producers_of_one_client(admin: AdminClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest first; the index is bounded, and forgets the one that came first."""
    monkeypatch.setattr(decisions_module, "PRODUCERS_MAX", 3)
    for producer_id in (1, 2, 3, 4):
        admin.decider.append(producer_id=producer_id)
    admin.decider.refuse(producer_id=2)
    _, document = await admin.get("/producers?client_id=billing")
    assert [one["producer_id"] for one in document["producers"]] == [2, 4, 3]
    assert document["producers"][0]["topic"] == "orders"
    assert (await admin.get("/producers?client_id=other"))[1] == {"producers": []}


def test_totals_leave_out_what_may_not_be_seen() -> None:
    """Topics, partitions, those led here, and their producers."""
    everything, orders = dict[str, int](), dict[str, int]()
    list(add_totals(FakeBroker(), everything, lambda _: True))
    list(add_totals(FakeBroker(), orders, lambda topic: topic == "orders"))
    assert everything == {"topics": 2, "partitions": 3, "leading": 3, "producers": 0}
    assert orders == {"topics": 1, "partitions": 2, "leading": 2, "producers": 0}


async def test_the_overview_of_a_broker(running: Running, admin_address: str) -> None:
    """Its place in the cluster, who follows it, whether faults may be set, and what the caller may do."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{admin_address}/overview") as answer,
    ):
        document = await answer.json()
    assert document["broker_id"] == running.broker.config.broker_id
    assert document["status"] == "ready"
    assert document["followers"] == {"programs": 0, "consoles": 0}
    assert document["faults"] == {"rules": 0, "active": 0, "allowed": True}
    assert document["caller"] == {"principal": "User:ANONYMOUS", "may_change": True}
    assert document["memory_bytes"] > 1_000_000


async def test_a_document_of_another_broker_is_asked_for(admin: AdminClient) -> None:
    """502 with the reason if it cannot be had."""
    status, document = await admin.get("/topics?broker=7")
    assert (status, document["error"]) == (502, "there is no broker 7 in this cluster")
    own = admin.broker.config.broker_id
    assert (await admin.get(f"/topics?broker={own}"))[0] == 200


@pytest.mark.parametrize("name", ["trace.svg", "trace.mmd", "trace.jsonl"])
async def test_the_past_is_drawn(admin: AdminClient, name: str) -> None:
    """Leaves out all other producers, if one is named."""
    admin.decider.append(producer_id=7)
    admin.decider.append(producer_id=8)
    admin.decider.hit(producer_id=7)
    both = await admin.text(f"/{name}")
    one = await admin.text(f"/{name}?producer_id=7")
    assert "8" in both
    assert len(one) < len(both)


async def test_a_diagram_has_the_colours_that_are_asked_for(admin: AdminClient) -> None:
    admin.decider.append()
    assert "prefers-color-scheme" in await admin.text("/trace.svg")
    light, dark = [await admin.text(f"/trace.svg?theme={theme}") for theme in ("light", "dark")]
    assert "prefers-color-scheme" not in light + dark
    assert light != dark
    assert (await admin.get("/trace.svg?theme=pink"))[0] == 400


async def test_events_since_a_number(admin: AdminClient) -> None:
    """Another broker asks for what is new, and learns what it missed, or that the numbers begin again."""
    caller = Caller("h", "h:1", "User:ANONYMOUS", Role.CHANGE, None)
    read = Readings(admin.broker).events
    for sequence in range(3):
        admin.decider.append(base_sequence=sequence)
    first = await read(caller, {"after": "1"}, {})
    assert [one["number"] for one in first["events"]] == [2, 3]
    assert (first["number"], first["lost"]) == (3, 0)
    for sequence in range(1500):
        admin.decider.append(base_sequence=sequence)
    later = await read(caller, {"after": "3"}, {})
    assert (len(later["events"]), later["lost"]) == (1000, 500)
    restarted = await read(caller, {"after": "99999", "n": "10"}, {})
    assert len(restarted["events"]) == 10


async def test_the_actions_are_those_of_the_parser(admin: AdminClient) -> None:
    """Each type and field, with the words of its refusals; what is needed is refused when it is missing."""
    _, document = await admin.get("/faults/actions")
    assert [one["type"] for one in document["actions"]] == list(TYPES)
    for action in document["actions"]:
        for field in action["fields"]:
            given = {one["name"]: 1 for one in action["fields"] if one is not field}
            if field["needed"]:
                with pytest.raises(RuleError, match=r"missing|takes"):
                    Action.read({"type": action["type"], **given})
    (delay,) = [one for one in document["actions"] if one["type"] == "delay_response"]
    with pytest.raises(RuleError) as refused:
        Action.read({"type": "delay_response", "ms": "soon"})
    assert delay["fields"][0]["takes"] in str(refused.value)


@pytest.mark.parametrize(
    ("name", "names"), [("group", {}), ("producers", {"topic": "orders"}), ("producers", {})]
)
async def test_a_peer_that_leaves_out_a_name_is_told_which(
    name: str, names: dict[str, str]
) -> None:
    message = AdminRead(
        name=name, query={}, names=names, principal="User:a", address="1.2.3.4:5", may_change=False
    )
    status, text = await answer_peer(FakeBroker(), message)
    assert status == 400
    assert f"{name}: takes the names" in text


async def test_a_picture_has_its_colours_in_a_tab_of_its_own(admin: AdminClient) -> None:
    """Its style sheet is part of it; otherwise nothing may be loaded or run."""
    async with admin.session.get(admin.url + "/trace.svg") as answer:
        policy = answer.headers["Content-Security-Policy"]
        assert policy == "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
