"""Topics as nodes: reading them, and the operations that create, extend and delete them.

A change of a few partitions is one atomic multi-operation. ZooKeeper takes about 1 MB in one, so a
big change is several, each at most `OPERATIONS_MAX` long, in an order that a crash cannot hurt:

Creation and new partitions:
1. the topic node, its configuration and the first partitions' states;
2. more partitions' states, and so on. After a crash the topic exists with partitions that were never
   led; the controller, or a broker alone at its start, gives them their first states.

Deletion:
1. a node below `/admin/delete_topics` with the topic's id is created, and the first partitions go. From
   here on the topic counts as gone, and the deletion is answered;
2. more partitions, and so on;
3. the last ones, the topic, its configuration, and the node of step 1: at the earliest when the broker that
   deletes the topic has renamed its directories. After a crash `load` finds the node and goes on, and so
   does a creation; its id tells that the directories were deleted on purpose.

A node below the topic's is called as its id (`identity_checks`).
Invariant: a change that was meant for a topic does not hit a later one of the same name.

Knows nothing of rules (`topic_registry.py`) and of JSON (`node_data.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Final

from echoless.broker.metadata.node_data import (
    TOPIC_CONFIGS,
    TOPIC_DELETIONS,
    TOPIC_PREDECESSORS,
    TOPICS,
    LeaderAndIsr,
    NodeDataError,
    Predecessor,
    decode_config,
    decode_partition_state,
    decode_predecessor,
    decode_topic,
    decode_uuid,
    encode_config,
    encode_partition_state,
    encode_predecessor,
    encode_topic,
    encode_uuid,
    partition_path,
    partition_state_path,
    partitions_path,
    topic_config_path,
    topic_deletion_path,
    topic_id_path,
    topic_path,
)
from echoless.broker.metadata.topic import NO_NODE, Relocation, StateChange, Topic
from echoless.broker.tree.lost_replies import commit
from echoless.broker.tree.node_tree import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    MultiFailedError,
    Node,
    NodeTree,
    NoNodeError,
    Operation,
    SetData,
    ensure_paths,
)

OPERATIONS_MAX: Final = 1000
"""In one multi-operation; about 200 bytes each."""
STATE_CHANGES_MAX: Final = OPERATIONS_MAX // 4
"""In one multi-operation: each may take a check of its topic and two parents beside itself."""
RELOCATIONS_MAX: Final = OPERATIONS_MAX // 2
"""In one multi-operation, of partitions whose states are checked: the topic's node, with all partitions, is in it too."""
FIRST_DELETES_MAX: Final = 100
"""In the operation that deletes a topic: what is answered when it is done should not take long."""
DELETION_RACES_MAX: Final = 10


async def ensure_topic_paths(tree: NodeTree) -> None:
    """Creates the parents of everything here."""
    await ensure_paths(tree, [TOPICS, TOPIC_CONFIGS, TOPIC_DELETIONS, TOPIC_PREDECESSORS])


async def read_topic_names(tree: NodeTree) -> list[str]:
    """All topics, sorted."""
    return await tree.children(TOPICS)


async def read_topics(tree: NodeTree, names: Sequence[str]) -> dict[str, Topic]:
    """Reads the named topics that exist and are not being deleted. Raises `NodeDataError`."""
    nodes = await tree.read_many([topic_path(name) for name in names])
    configs = await tree.read_many([topic_config_path(name) for name in names])
    topics = [
        _read_topic(name, node, config)
        for name, node, config in zip(names, nodes, configs, strict=True)
        if node is not None
    ]
    id_nodes = await tree.read_many([topic_id_path(topic.name, topic.topic_id) for topic in topics])
    states = await _read_states(
        tree, [(topic.name, partition) for topic in topics for partition in topic.assignment]
    )
    found = {}
    for topic, id_node in zip(topics, id_nodes, strict=True):
        of_topic = {
            partition: states[topic.name, partition]
            for partition in topic.assignment
            if (topic.name, partition) in states
        }
        found[topic.name] = topic._replace(
            states=of_topic,
            has_id_node=id_node is not None,
            predecessor=_read_predecessor(topic, id_node),
        )
    return await _without_deletions(tree, found)


async def _without_deletions(tree: NodeTree, topics: dict[str, Topic]) -> dict[str, Topic]:
    """Leaves out what was deleted, or began to be, while it was read: states go first."""
    partial = [name for name, topic in topics.items() if len(topic.states) < topic.partition_count]
    if not partial:
        return topics
    marks = await tree.read_many([topic_deletion_path(name) for name in partial])
    nodes = await tree.read_many([topic_path(name) for name in partial])
    gone = {
        name
        for name, mark, node in zip(partial, marks, nodes, strict=True)
        if mark is not None
        or node is None
        or decode_topic(topic_path(name), node.data).topic_id != topics[name].topic_id
    }
    return {name: topic for name, topic in topics.items() if name not in gone}


def _read_topic(name: str, node: Node, config: Node | None) -> Topic:
    data = decode_topic(topic_path(name), node.data)
    return Topic(
        name=name,
        topic_id=data.topic_id,
        assignment=data.assignment,
        reassignments=data.reassignments,
        states={},
        config=decode_config(topic_config_path(name), config.data) if config else {},
        node_version=node.version,
        config_version=config.version if config else NO_NODE,
    )


def _read_predecessor(topic: Topic, id_node: Node | None) -> Predecessor | None:
    if id_node is None or not id_node.data:
        return None
    return decode_predecessor(topic_id_path(topic.name, topic.topic_id), id_node.data)


async def _read_states(
    tree: NodeTree, pairs: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], LeaderAndIsr]:
    paths = [partition_state_path(name, partition) for name, partition in pairs]
    nodes = await tree.read_many(paths)
    return {
        pair: decode_partition_state(path, node)
        for pair, path, node in zip(pairs, paths, nodes, strict=True)
        if node is not None
    }


async def read_parts(
    tree: NodeTree,
    topics: Mapping[str, Topic],
    partitions: Mapping[str, Collection[int]],
    reassigned: Collection[str],
) -> dict[str, Topic]:
    """Known topics with new states of these partitions; of those in `reassigned` also with a new assignment.

    A partition with other replicas has its state read as well, after them, as if the topic were read as a whole. A topic is
    left out if it has to be: it has other partitions, a state is missing or a node cannot be read, or the topic may not be
    the one that is known. The id is read last, so what is read is that topic's.
    """
    known = {name: topic for name, topic in topics.items() if topic.has_id_node}
    try:
        newer = await _read_assignments(tree, [known[name] for name in reassigned if name in known])
        due = {
            name: {*partitions.get(name, ()), *_with_other_replicas(topic, newer.get(name, topic))}
            for name, topic in known.items()
            if name in newer or name not in reassigned
        }
        states = await _read_states(
            tree, [(name, partition) for name, some in due.items() for partition in sorted(some)]
        )
    except NodeDataError:
        return {}
    ids = await tree.read_many([topic_id_path(name, known[name].topic_id) for name in due])
    found = {}
    for (name, some), node in zip(due.items(), ids, strict=True):
        read = {one: states[name, one] for one in some if (name, one) in states}
        if node is not None and len(read) == len(some):
            found[name] = newer.get(name, known[name]).with_newer_states(read)
    return found


async def _read_assignments(tree: NodeTree, topics: Sequence[Topic]) -> dict[str, Topic]:
    """The topics as their nodes say now, without those that are gone or have other partitions."""
    nodes = await tree.read_many([topic_path(topic.name) for topic in topics])
    newer = {}
    for topic, node in zip(topics, nodes, strict=True):
        if node is None:
            continue
        topic_id, assignment, reassignments = decode_topic(topic_path(topic.name), node.data)
        if topic_id == topic.topic_id and assignment.keys() == topic.assignment.keys():
            newer[topic.name] = topic.with_newer_assignment(assignment, reassignments, node.version)
    return newer


def _with_other_replicas(before: Topic, after: Topic) -> list[int]:
    if before.assignment is after.assignment:
        return []
    return [one for one, replicas in after.assignment.items() if before.assignment[one] != replicas]


def create_operations(topic: Topic) -> Iterator[Operation]:
    """A new topic. `config_version` says whether a configuration was there before it."""
    yield Create(topic_path(topic.name), encode_topic(topic.topic_id, topic.assignment))
    before = topic.predecessor
    data = b"" if before is None else encode_predecessor(before)
    yield Create(topic_id_path(topic.name, topic.topic_id), data)
    yield config_operation(topic)
    yield Create(partitions_path(topic.name))
    yield from new_partition_operations(topic, topic.assignment)


def identity_checks(topic: Topic) -> list[Check]:
    """Checks that keep a late change from a new topic of the same name, whose versions start again."""
    if not topic.has_id_node:
        return []
    return [Check(topic_id_path(topic.name, topic.topic_id), ANY_VERSION)]


def assignment_operation(before: Topic, after: Topic) -> Operation:
    """Another assignment for a topic of exactly this version."""
    data = encode_topic(after.topic_id, after.assignment, after.reassignments)
    return SetData(topic_path(after.name), data, before.node_version)


def bases_of(topic: Topic, relocations: Mapping[int, Relocation]) -> dict[int, Check]:
    """Checks that states are as they were when it was decided to let replicas go, or that a move is complete.

    Without them, the last replica in sync could be dropped just after it became that. A partition that only gets more replicas
    needs none.
    """
    return {
        partition: Check(partition_state_path(topic.name, partition), state.node_version)
        for partition, (replicas, _) in relocations.items()
        if (state := topic.states.get(partition)) is not None
        and (partition in topic.reassignments or {*topic.assignment[partition]} - {*replicas})
    }


def extend_operations(before: Topic, after: Topic) -> Iterator[Operation]:
    """More partitions for a topic."""
    yield assignment_operation(before, after)
    yield from new_partition_operations(after, range(before.partition_count, after.partition_count))


def new_partition_operations(topic: Topic, partitions: Iterable[int]) -> Iterator[Operation]:
    """The first state of partitions."""
    encode = cache(encode_partition_state)  # few of thousands differ
    for partition in partitions:
        yield Create(partition_path(topic.name, partition))
        data = encode(topic.states[partition])
        yield Create(partition_state_path(topic.name, partition), data)


def config_operation(topic: Topic) -> Operation:
    """The topic's new configuration, conditional on the version that it had."""
    path, data = topic_config_path(topic.name), encode_config(topic.config)
    if topic.config_version == NO_NODE:
        return Create(path, data)
    return SetData(path, data, topic.config_version)


def state_operations(before: Topic, after: Topic) -> Iterator[Operation]:
    """The states that differ: first ones are created, others written over the version before."""
    for partition, state in after.states.items():
        old = before.states.get(partition)
        if old == state:
            continue
        path, data = partition_state_path(after.name, partition), encode_partition_state(state)
        yield Create(path, data) if old is None else SetData(path, data, old.node_version)


async def state_change_operations(
    tree: NodeTree, changes: Sequence[StateChange]
) -> list[Operation]:
    """The new states, conditional on the versions before. First states come with the nodes that are missing above."""
    first = [change for change in changes if change.before is None]
    parents = dict.fromkeys(
        path
        for change in first
        for path in (
            partitions_path(change.topic),
            partition_path(change.topic, change.partition),
        )
    )
    nodes = await tree.read_many(list(parents)) if parents else []
    operations: list[Operation] = [
        Create(path) for path, node in zip(parents, nodes, strict=True) if node is None
    ]
    for topic, partition, before, after in changes:
        path, data = partition_state_path(topic, partition), encode_partition_state(after)
        operations.append(
            Create(path, data) if before is None else SetData(path, data, before.node_version)
        )
    return operations


async def ensure_partition_paths(tree: NodeTree, before: Topic, after: Topic) -> None:
    """Creates the parents of first states; a crash, or Kafka, may have left some of them."""
    unled = after.states.keys() - before.states.keys()
    await ensure_paths(tree, [partition_path(after.name, partition) for partition in sorted(unled)])


async def begin_deletion(
    tree: NodeTree, topic: Topic, operations: Sequence[Operation] = ()
) -> None:
    """Deletes a topic of exactly this version, and a first part of its nodes.

    `operations` are part of it. One short operation however many partitions there are. Raises `MultiFailedError`.
    """
    mark = Create(topic_deletion_path(topic.name), encode_uuid(topic.topic_id).encode())
    begin: list[Operation] = [
        *identity_checks(topic),
        Check(topic_path(topic.name), topic.node_version),
        mark,
        *operations,
    ]
    room = min(OPERATIONS_MAX, FIRST_DELETES_MAX) - len(begin)
    deletes, _ = await _next_deletes(tree, topic.name, room)
    await commit(tree, [*begin, *deletes])


async def finish_deletions(tree: NodeTree) -> dict[str, uuid.UUID]:
    """Completes what a crash has left half deleted; returns the topics' names and ids, if known."""
    found = {}
    for name in await tree.children(TOPIC_DELETIONS):
        topic_id = await read_deletion(tree, name)
        if topic_id is not None:
            found[name] = topic_id
        await finish_deletion(tree, name)
    return found


async def read_deletion(tree: NodeTree, name: str) -> uuid.UUID | None:
    """The id of the topic of this name that is being deleted; None if none is, or it is not known."""
    node = (await tree.read_many([topic_deletion_path(name)]))[0]
    try:
        return decode_uuid(node.data.decode()) if node is not None and node.data else None
    except ValueError:
        return None


async def finish_deletion(tree: NodeTree, name: str) -> None:
    """Deletes what is left of a topic whose deletion has begun. Raises `MultiFailedError`."""
    while await continue_deletion(tree, name):
        pass


async def continue_deletion(tree: NodeTree, name: str) -> bool:
    """Deletes the next nodes of a topic whose deletion has begun; returns whether there may be more.

    Others may do the same. Every step depends on the mark of the deletion, so that nothing of a later
    topic is deleted. Raises `MultiFailedError` after many lost races.
    """
    mark = topic_deletion_path(name)
    for _ in range(DELETION_RACES_MAX):
        if (await tree.read_many([mark]))[0] is None:
            return False
        deletes, are_last = await _next_deletes(tree, name, OPERATIONS_MAX - 2)
        last = [Delete(mark)] if are_last else []
        try:
            await commit(tree, [Check(mark, 0), *deletes, *last])
        except MultiFailedError as error:
            lost = error
        else:
            return not are_last
    raise lost


async def _next_deletes(tree: NodeTree, name: str, count: int) -> tuple[list[Operation], bool]:
    """The first `count` deletes of what is there of a topic, children first; whether those are all."""
    partitions = sorted(map(int, await _children(tree, partitions_path(name))))
    some = partitions[: max((count + 1) // 2, 1)]
    paths: list[str] = []
    for partition in some:
        paths += partition_state_path(name, partition), partition_path(name, partition)
    if len(some) == len(partitions):
        paths += [
            f"{topic_path(name)}/{child}" for child in await _children(tree, topic_path(name))
        ]
        paths += topic_path(name), topic_config_path(name)
    nodes = await tree.read_many(paths)
    present = [path for path, node in zip(paths, nodes, strict=True) if node is not None]
    are_all = len(some) == len(partitions) and len(present) <= count
    return [Delete(path) for path in present[: max(count, 1)]], are_all


async def _children(tree: NodeTree, path: str) -> list[str]:
    try:
        return await tree.children(path)
    except NoNodeError:
        return []


async def commit_in_chunks(
    tree: NodeTree, operations: Iterable[Operation], checks: Sequence[Check] = ()
) -> None:
    """One multi-operation if they fit, else several, in order, each with the checks.

    The next ones are made when those before are committed: those of thousands of partitions at once
    would hold the loop. Raises `MultiFailedError`.
    """
    left = iter(operations)
    while chunk := list(islice(left, OPERATIONS_MAX - len(checks))):
        await commit(tree, [*checks, *chunk])
