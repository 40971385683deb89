"""The APIs of the Kafka port, by key: each with its versions, declared once.

ApiVersions lists them, the dispatcher refuses what they do not serve, and each takes its own from here
(`API = declared(__name__)`): its handler is in the file of its name in this room, imported with the first request.
So no version can be listed that is not served. `tests/broker/handlers/test_apis.py` checks that every file is there
and serves what is declared. `name` is kio's package; versions are inclusive (`protocol/registry.py`).
"""

from __future__ import annotations

from typing import Final

from echoless.protocol.api_versions import decode_api_versions_request
from echoless.protocol.fetch_request import decode_fetch_request
from echoless.protocol.init_producer_id import decode_init_producer_id_request
from echoless.protocol.known.fetch import read_fetch_request
from echoless.protocol.known.produce import read_produce_request
from echoless.protocol.metadata_request import decode_metadata_request
from echoless.protocol.offset_commit import decode_offset_commit_request
from echoless.protocol.produce_request import decode_produce_request
from echoless.protocol.registry import Api

APIS: Final[tuple[Api, ...]] = (
    Api(
        key=0,
        name="produce",
        version_min=3,
        version_max=13,
        flexible_from=9,
        listed_min=0,
        read_request=decode_produce_request,
        read_known=read_produce_request,
        read_at_once_bytes=2
        ** 31,  # nearly all of it records, which are not read; its rows are counted
    ),
    Api(
        key=1,
        name="fetch",
        version_min=4,
        version_max=17,
        flexible_from=12,
        read_request=decode_fetch_request,
        read_known=read_fetch_request,
        read_at_once_bytes=128 * 1024,
    ),
    Api(key=2, name="list_offsets", version_min=1, version_max=9, flexible_from=6),
    Api(
        key=3,
        name="metadata",
        version_min=0,
        version_max=13,
        flexible_from=9,
        read_request=decode_metadata_request,
    ),
    Api(
        key=8,
        name="offset_commit",
        version_min=2,
        version_max=10,
        flexible_from=8,
        read_request=decode_offset_commit_request,
    ),
    Api(key=9, name="offset_fetch", version_min=1, version_max=10, flexible_from=6),
    Api(key=10, name="find_coordinator", version_min=0, version_max=6, flexible_from=3),
    Api(key=11, name="join_group", version_min=0, version_max=9, flexible_from=6),
    Api(key=12, name="heartbeat", version_min=0, version_max=4, flexible_from=4),
    Api(key=13, name="leave_group", version_min=0, version_max=5, flexible_from=4),
    Api(key=14, name="sync_group", version_min=0, version_max=5, flexible_from=4),
    Api(key=15, name="describe_groups", version_min=0, version_max=6, flexible_from=5),
    Api(key=16, name="list_groups", version_min=0, version_max=5, flexible_from=3),
    Api(key=17, name="sasl_handshake", version_min=0, version_max=1, flexible_from=2),
    Api(
        key=18,
        name="api_versions",
        version_min=0,
        version_max=4,
        flexible_from=3,
        read_request=decode_api_versions_request,
    ),
    Api(key=19, name="create_topics", version_min=2, version_max=7, flexible_from=5),
    Api(key=20, name="delete_topics", version_min=1, version_max=6, flexible_from=4),
    Api(key=21, name="delete_records", version_min=0, version_max=2, flexible_from=2),
    Api(
        key=22,
        name="init_producer_id",
        version_min=0,
        version_max=6,
        flexible_from=2,
        read_request=decode_init_producer_id_request,
    ),
    Api(key=23, name="offset_for_leader_epoch", version_min=2, version_max=4, flexible_from=4),
    Api(key=24, name="add_partitions_to_txn", version_min=0, version_max=5, flexible_from=3),
    Api(key=25, name="add_offsets_to_txn", version_min=0, version_max=4, flexible_from=3),
    Api(key=26, name="end_txn", version_min=0, version_max=5, flexible_from=3),
    Api(key=27, name="write_txn_markers", version_min=1, version_max=2, flexible_from=1),
    Api(key=28, name="txn_offset_commit", version_min=0, version_max=5, flexible_from=3),
    Api(key=29, name="describe_acls", version_min=1, version_max=3, flexible_from=2),
    Api(key=30, name="create_acls", version_min=1, version_max=3, flexible_from=2),
    Api(key=31, name="delete_acls", version_min=1, version_max=3, flexible_from=2),
    Api(key=32, name="describe_configs", version_min=1, version_max=4, flexible_from=4),
    Api(key=33, name="alter_configs", version_min=0, version_max=2, flexible_from=2),
    Api(key=35, name="describe_log_dirs", version_min=1, version_max=4, flexible_from=2),
    Api(key=36, name="sasl_authenticate", version_min=0, version_max=2, flexible_from=2),
    Api(key=37, name="create_partitions", version_min=0, version_max=3, flexible_from=2),
    Api(key=42, name="delete_groups", version_min=0, version_max=2, flexible_from=2),
    Api(key=43, name="elect_leaders", version_min=0, version_max=2, flexible_from=2),
    Api(key=44, name="incremental_alter_configs", version_min=0, version_max=1, flexible_from=1),
    Api(
        key=45, name="alter_partition_reassignments", version_min=0, version_max=0, flexible_from=0
    ),
    Api(key=46, name="list_partition_reassignments", version_min=0, version_max=0, flexible_from=0),
    Api(key=47, name="offset_delete", version_min=0, version_max=0, flexible_from=1),
    Api(key=48, name="describe_client_quotas", version_min=0, version_max=1, flexible_from=1),
    Api(key=49, name="alter_client_quotas", version_min=0, version_max=1, flexible_from=1),
    Api(
        key=50,
        name="describe_user_scram_credentials",
        version_min=0,
        version_max=0,
        flexible_from=0,
    ),
    Api(key=51, name="alter_user_scram_credentials", version_min=0, version_max=0, flexible_from=0),
    Api(key=57, name="update_features", version_min=0, version_max=1, flexible_from=0),
    Api(key=60, name="describe_cluster", version_min=0, version_max=1, flexible_from=0),
    Api(key=61, name="describe_producers", version_min=0, version_max=0, flexible_from=0),
    Api(key=65, name="describe_transactions", version_min=0, version_max=0, flexible_from=0),
    Api(key=66, name="list_transactions", version_min=0, version_max=2, flexible_from=0),
    Api(key=68, name="consumer_group_heartbeat", version_min=0, version_max=1, flexible_from=0),
    Api(key=69, name="consumer_group_describe", version_min=0, version_max=1, flexible_from=0),
)
API_BY_KEY: Final = {api.key: api for api in APIS}
API_BY_NAME: Final = {api.name: api for api in APIS}


def declared(module: str) -> Api:
    """The API that a module of this room serves."""
    return API_BY_NAME[module.rpartition(".")[2]]
