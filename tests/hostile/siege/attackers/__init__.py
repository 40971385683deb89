"""The attackers, all of which the broker withstands at once."""

from __future__ import annotations

from tests.hostile.siege.attacker import Attacker
from tests.hostile.siege.attackers.admin_port import (
    AdminGarbage,
    AdminReaders,
    ForeignOrigins,
    IdleAdmins,
    LongPaths,
    ReboundHosts,
    SlowBodies,
)
from tests.hostile.siege.attackers.administration import (
    ExtremeConfigs,
    GrowingTopics,
    RecordDeletion,
)
from tests.hostile.siege.attackers.bombs import Bombs, Claims, TinyRecords
from tests.hostile.siege.attackers.connections import (
    ConnectionFlood,
    Crawlers,
    HalfOpen,
    LargeFrames,
    NeverReading,
)
from tests.hostile.siege.attackers.leavers import Leavers
from tests.hostile.siege.attackers.native_port import FalseReplicas, NativeGarbage, WrongHellos
from tests.hostile.siege.attackers.nulls import NullFetches, SchemaBreakers
from tests.hostile.siege.attackers.producer_ids import ProducerIdFlood, TransactionSeekers
from tests.hostile.siege.attackers.produces import (
    DivergentDuplicates,
    FreshProducers,
    RefusedProduces,
    Unacknowledged,
)
from tests.hostile.siege.attackers.queries import ConfigQueries, QueryFlood
from tests.hostile.siege.attackers.schemas import SchemaFuzz
from tests.hostile.siege.attackers.topics import (
    AutoCreation,
    EverythingDescribed,
    TinySegments,
    TooManyPartitions,
    TopicChurn,
)

ATTACKERS: dict[str, type[Attacker]] = {
    one.name: one
    for one in (
        NullFetches,
        SchemaBreakers,
        SchemaFuzz,
        Bombs,
        TinyRecords,
        Claims,
        LargeFrames,
        NeverReading,
        ConnectionFlood,
        HalfOpen,
        Crawlers,
        TopicChurn,
        EverythingDescribed,
        TooManyPartitions,
        TinySegments,
        AutoCreation,
        IdleAdmins,
        Leavers,
        ForeignOrigins,
        ReboundHosts,
        LongPaths,
        SlowBodies,
        AdminGarbage,
        AdminReaders,
        NativeGarbage,
        WrongHellos,
        FalseReplicas,
        RefusedProduces,
        DivergentDuplicates,
        FreshProducers,
        Unacknowledged,
        ProducerIdFlood,
        TransactionSeekers,
        QueryFlood,
        ConfigQueries,
        ExtremeConfigs,
        RecordDeletion,
        GrowingTopics,
    )
}
