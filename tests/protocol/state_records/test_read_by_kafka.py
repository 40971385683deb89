"""Records of `__consumer_offsets` and `__transaction_state` as Apache Kafka's own log dump reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.protocol.records import Record, build_batch
from echoless.protocol.state_records.classic_group_value import write_group_value
from echoless.protocol.state_records.group_keys import write_group_key, write_offset_key
from echoless.protocol.state_records.offset_value import write_offset_value
from echoless.protocol.state_records.transaction_records import (
    write_transaction_key,
    write_transaction_value,
)
from tests.compatibility.kafka_tools import run_tool
from tests.protocol.state_records.test_consumer_group_values import RECORDS
from tests.protocol.state_records.test_page import KEY, OFFSET, REBALANCING, STABLE
from tests.protocol.state_records.test_transaction_records import EMPTY, PREPARED
from tests.support.apache_kafka import KafkaVersion
from tests.toolchain import require

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


_GROUP = (
    '"protocolType":"consumer","generation":6,"protocol":"range","leader":"c-1",'
    '"currentStateTimestamp":1700000000000,"members":[{"memberId":"c-1","groupInstanceId":"i",'
    '"clientId":"c","clientHost":"/127.0.0.1","rebalanceTimeout":60000,"sessionTimeout":10000,'
    '"subscription":"AAE=","assignment":"AAI="}]'
)
_LEADER_EPOCH = '"leaderEpoch":7,'
_EXPIRES = ',"expireTimestamp":1800000000000'
_OFFSET_KEY = '{"type":"1","data":{"group":"orders","topic":"t","partition":3}}'
_GROUP_KEY = '{"type":"2","data":{"group":"orders"}}'


def test_kafka_reads_every_version_that_is_written(tmp_path: Path) -> None:
    """`kafka-dump-log --offsets-decoder` shows offsets of versions 1 and 3, groups of 3 and 4, and tombstones."""
    require("java", "kafka")
    offset_key, group_key = write_offset_key(KEY), write_group_key("orders")
    expiring = OFFSET._replace(leader_epoch=-1, expire_timestamp=1_800_000_000_000)
    records = [
        (offset_key, write_offset_value(OFFSET)),
        (offset_key, write_offset_value(expiring)),
        (offset_key, None),
        (group_key, write_group_value(STABLE)),
        (group_key, write_group_value(REBALANCING)),
        (group_key, None),
    ]
    numbered = [Record(offset, 0, key, value) for offset, (key, value) in enumerate(records)]
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(build_batch(numbered))
    printed = run_tool("kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(segment))
    rows = [line.partition(" key: ")[2] for line in printed.splitlines() if "| offset: " in line]
    offset = '"offset":42,%s"metadata":"m","commitTimestamp":1700000000000%s'
    assert rows == [
        f'{_OFFSET_KEY} payload: {{"version":"3","data":{{{offset % (_LEADER_EPOCH, "")}}}}}',
        f'{_OFFSET_KEY} payload: {{"version":"1","data":{{{offset % ("", _EXPIRES)}}}}}',
        f"{_OFFSET_KEY} payload: <DELETE>",
        f'{_GROUP_KEY} payload: {{"version":"3","data":{{{_GROUP}}}}}',
        f'{_GROUP_KEY} payload: {{"version":"4","data":{{{_GROUP}}}}}',
        f"{_GROUP_KEY} payload: <DELETE>",
    ]


_TOPIC_ID = '"topicId":"AAECAwQFBgcICQoLDA0ODw"'
_CONSUMER_ROWS = [
    ('"groupId":"g"', '"epoch":5,"metadataHash":258'),
    (
        '"groupId":"g","memberId":"m"',
        (
            '"instanceId":"i","rackId":null,"clientId":"c","clientHost":"/127.0.0.1",'
            '"subscribedTopicNames":["t"],"subscribedTopicRegex":"t.*","rebalanceTimeoutMs":300000,'
            '"serverAssignor":"uniform"'
        ),
    ),
    ('"groupId":"g"', '"assignmentEpoch":5'),
    (
        '"groupId":"g","memberId":"m"',
        f'"topicPartitions":[{{{_TOPIC_ID},"partitions":[0,1]}}]',
    ),
    (
        '"groupId":"g","memberId":"m"',
        (
            '"memberEpoch":5,"previousMemberEpoch":4,"state":1,'
            f'"assignedPartitions":[{{{_TOPIC_ID},"partitions":[0]}}],'
            f'"partitionsPendingRevocation":[{{{_TOPIC_ID},"partitions":[2]}}]'
        ),
    ),
    (
        '"groupId":"g","regularExpression":"t.*"',
        '"topics":["t","tt"],"version":7,"timestamp":1700000000000',
    ),
]


def test_kafka_4_reads_the_records_of_the_consumer_protocol(tmp_path: Path) -> None:
    """All six types; it skips the epochs of partitions, which Kafka stores from 4.3 on."""
    require("java", "kafka-4")
    numbered = [Record(offset, 0, key, value) for offset, (key, value) in enumerate(RECORDS)]
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(build_batch(numbered))
    printed = run_tool(
        "kafka.tools.DumpLogSegments",
        *("--offsets-decoder", "--files", str(segment)),
        jars=KafkaVersion.V4.jars,
    )
    rows = [line.partition(" key: ")[2] for line in printed.splitlines() if "| offset: " in line]
    types = (3, 5, 6, 7, 8, 16)
    assert rows == [
        f'{{"type":"{kind}","data":{{{key}}}}} payload: {{"version":"0","data":{{{value}}}}}'
        for kind, (key, value) in zip(types, _CONSUMER_ROWS, strict=True)
    ]


_METADATA = "transaction_metadata::transactionalId=orders payload: "
_ID = '{"type":"0","data":{"transactionalId":"orders"}} payload: '
_TOPICS = '"transactionPartitions":[{"topic":"t","partitionIds":[0,1]}]'
_TRANSACTIONS = {
    KafkaVersion.V3_9: [
        (
            f"{_METADATA}producerId:7,producerEpoch:6,state=Empty,partitions=[],"
            "txnLastUpdateTimestamp=1700000000000,txnTimeoutMs=60000"
        ),
        (
            f"{_METADATA}producerId:7,producerEpoch:32767,state=PrepareCommit,partitions=[t-1,t-0],"
            "txnLastUpdateTimestamp=1700000000001,txnTimeoutMs=60000"
        ),
        f"{_METADATA}<DELETE>",
    ],
    KafkaVersion.V4: [
        (
            f'{_ID}{{"version":"1","data":{{"producerId":7,"producerEpoch":6,"transactionTimeoutMs":60000,'
            '"transactionStatus":0,"transactionPartitions":null,'
            '"transactionLastUpdateTimestampMs":1700000000000,"transactionStartTimestampMs":-1}}'
        ),
        (
            f'{_ID}{{"version":"1","data":{{"producerId":7,"previousProducerId":7,"nextProducerId":8,'
            f'"producerEpoch":32767,"transactionTimeoutMs":60000,"transactionStatus":2,{_TOPICS},'
            '"transactionLastUpdateTimestampMs":1700000000001,'
            '"transactionStartTimestampMs":1700000000000,"clientTransactionVersion":2}}'
        ),
        f"{_ID}<DELETE>",
    ],
}


@pytest.mark.parametrize("version", list(KafkaVersion))
def test_kafka_reads_transactional_ids(tmp_path: Path, version: KafkaVersion) -> None:
    """`kafka-dump-log --transaction-log-decoder` shows every field that is Kafka's, and skips the others."""
    require("java", "kafka" if version is KafkaVersion.V3_9 else "kafka-4")
    key = write_transaction_key("orders")
    values = (write_transaction_value(EMPTY), write_transaction_value(PREPARED), None)
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(
        build_batch([Record(offset, 0, key, value) for offset, value in enumerate(values)])
    )
    printed = run_tool(
        "kafka.tools.DumpLogSegments",
        *("--transaction-log-decoder", "--files", str(segment)),
        jars=version.jars,
    )
    rows = [line.partition(" key: ")[2] for line in printed.splitlines() if "| offset: " in line]
    assert rows == _TRANSACTIONS[version]
