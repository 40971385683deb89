"""The configuration names about transactions and the topic that keeps their state.

`broker/config/names.py` adds all others.
"""

from __future__ import annotations

from dataclasses import dataclass

from echoless.broker.config.security import SecurityConfig
from echoless.broker.config.setting import setting
from echoless.broker.config.values import INT32_MAX, boolean, duration, integer


@dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False)
class TransactionSettings(SecurityConfig):
    """Settings of transactions."""

    transaction_max_timeout_ms: int = setting(
        900_000,
        duration(1, INT32_MAX),
        "longest transaction timeout that a producer may ask for",
    )
    transaction_two_phase_commit_enable: bool = setting(
        False,
        boolean(),
        "a preview of KIP-939: producers may ask for transactions without a timeout, and keep them over a restart",
    )
    transactional_id_expiration_ms: int = setting(
        604_800_000,
        duration(1, INT32_MAX),
        "a transactional id that has not been used for so long is forgotten",
    )
    transaction_state_log_num_partitions: int = setting(
        8,
        integer(1, 1000),
        "partitions of __transaction_state when it is created; a transactional id's partition depends on the number",
    )
    transaction_state_log_replication_factor: int = setting(
        3,
        integer(1, 100),
        "replicas of __transaction_state; fewer while the cluster has fewer brokers",
    )
    transaction_state_log_min_isr: int = setting(
        0,
        integer(0, 100),
        "min.insync.replicas of __transaction_state when it is created; 0: as min_insync_replicas says",
    )
    transaction_commit_timeout_ms: int = setting(
        5000,
        duration(1, INT32_MAX),
        "how long a change of a transactional id may wait for the replicas of __transaction_state",
    )
