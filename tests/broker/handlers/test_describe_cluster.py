"""DescribeCluster, over a real socket."""

from __future__ import annotations

from echoless.protocol.errors import ErrorCode
from tests.support.in_process import Running
from tests.support.raw_client import (
    RawConnection,
)


async def test_the_cluster_is_described(kafka: RawConnection, running: Running) -> None:
    """Id, controller and brokers; a client that looks for a controller port gets a helpful error."""
    fields = {"include_cluster_authorized_operations": False}
    response = await kafka.call("describe_cluster", 1, **fields, endpoint_type=1)
    assert (response.error_code, response.cluster_id) == (0, running.broker.cluster_id)
    (broker,) = response.brokers
    assert f"{broker.host}:{broker.port}" == running.kafka_address
    assert response.controller_id == broker.broker_id
    for endpoint_type, code in (
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ):
        response = await kafka.call("describe_cluster", 1, **fields, endpoint_type=endpoint_type)
        assert (response.error_code, response.brokers) == (code, ())
