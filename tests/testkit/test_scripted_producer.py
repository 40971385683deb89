"""The scripted producer sends exactly what it is given, and follows the protocol."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from echoless.protocol.errors import ErrorCode
from echoless.testkit.admin import Admin
from echoless.testkit.broker_process import BrokerProcess
from echoless.testkit.clients.scripted import Scripted
from echoless.testkit.faults import FaultRule, Faults
from echoless.testkit.native import Native, NativeError
from echoless.testkit.scripted_producer import NoAnswerError, ScriptedBatch, ScriptedProducer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as process:
        yield process


def test_any_sequence_can_be_sent_with_others_under_way(broker: BrokerProcess) -> None:
    """Three requests before the first answer: one in order, one repeated, one after a gap."""
    native = Native(broker.native)
    native.create_topic("any")
    batch = ScriptedBatch("any", 0, native.init_producer_id(), 0, 0, (b"1", b"2"))
    producer = ScriptedProducer.open(broker.bootstrap_servers)
    for one in (batch, batch, batch._replace(base_sequence=7)):
        producer.send(one)
    assert len(producer.under_way) == 3
    answers = [producer.receive(timeout_s=10)[1] for _ in range(3)]
    producer.close()
    assert [answer.error_code for answer in answers] == [0, 0, 45]
    assert [answer.base_offset for answer in answers[:2]] == [0, 0]
    assert native.values("any", 0) == [b"1", b"2"]


def test_a_lost_answer_is_no_answer(broker: BrokerProcess) -> None:
    """It waits for the given time, and the answer after the lost one arrives."""
    native, faults = Native(broker.native), Faults(Admin(broker.admin))
    native.create_topic("lost")
    first = ScriptedBatch("lost", 0, native.init_producer_id(), 0, 0, (b"1",))
    second = first._replace(base_sequence=1)
    producer = ScriptedProducer.open(broker.bootstrap_servers)
    action = {"type": "drop_response", "later": "send"}
    with faults.rule(action, match={"topic": "lost"}, times=1) as rule:
        producer.send(first)
        producer.send(second)
        assert producer.receive(timeout_s=10)[0] == second
        rule.wait_for_hits(1)
        with pytest.raises(NoAnswerError):
            producer.receive(timeout_s=0.01)
    assert producer.under_way == [first]
    producer.close()


def test_the_client_sends_again_until_it_is_stored(broker: BrokerProcess) -> None:
    """It resends in order and with the same numbers, whatever was lost."""
    native, faults = Native(broker.native), Faults(Admin(broker.admin))
    native.create_topic("again")
    client = Scripted(request_timeout_ms=50)
    client.open(broker.bootstrap_servers)
    with faults.drop_requests(times=1, topic="again"):
        for first in (0, 10, 20):
            client.send("again", 0, range(first, first + 10))
        client.wait()
    client.close()
    assert [ack.offset for ack in client.deliveries.acknowledged] == list(range(30))
    assert native.values("again", 0) == [b"%d" % number for number in range(30)]


def test_a_rule_goes_with_its_block(broker: BrokerProcess) -> None:
    """Its hits are the broker's count, which can still be read after the block."""
    faults = Faults(Admin(broker.admin))
    with faults.rule("drop_response", name="mine", match={"topic": "none"}) as rule:
        assert (rule.name, rule.hits) == ("mine", 0)
        with pytest.raises(TimeoutError, match="no 1 hits"):
            rule.wait_for_hits(1, timeout_s=0.01)
    assert (faults.rules(), rule.hits) == ([], 0)
    with pytest.raises(LookupError, match="no rule other"):
        FaultRule(faults, "other").document()


def test_a_refused_message_has_its_code(broker: BrokerProcess) -> None:
    """Kafka's number, beside the broker's words."""
    with pytest.raises(NativeError, match="UNKNOWN_TOPIC_OR_PARTITION") as refused:
        Native(broker.native).values("nowhere", 0)
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
