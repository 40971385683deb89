"""Who depends on whom: the graph of transactions, and its cycles (Adya's, with offsets as the order of versions). Pure.

Kafka promises neither snapshots nor an order across partitions. Records of open transactions interleave, so that ww
cycles, and wr cycles with ww in them, are legal, as are those with rw. A cycle of wr and the order of processes
alone is not: who is read was decided before the reader was.
"""

from __future__ import annotations

import enum
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple


class Edge(enum.Enum):
    """Why one transaction comes before another."""

    WW = "ww"
    """It wrote the version before, in some partition."""
    WR = "wr"
    """The other one read what it wrote."""
    RW = "rw"
    """The other one wrote the version after what it read last."""
    PROCESS = "process"
    """Both are of one process."""


class Cycle(NamedTuple):
    """Transactions by their numbers, each with the edge to the next one; the last leads to the first."""

    kind: str
    steps: tuple[tuple[int, Edge], ...]

    def __str__(self) -> str:
        return f"{self.kind}: " + " ".join(f"{node} -{edge.value}->" for node, edge in self.steps)


Graph = Mapping[int, Mapping[int, set[Edge]]]
"""By transaction and later transaction: the reasons."""
_READS: Final = frozenset({Edge.WR, Edge.PROCESS})
_STEPS: Final = (
    (frozenset({Edge.WW}), Edge.WW),
    (_READS, Edge.WR),
    (_READS | {Edge.WW}, Edge.WR),
    (frozenset(Edge), Edge.RW),
)
"""Edges that a cycle may have, and the one that it is looked for with."""
FORBIDDEN: Final = "G1c of reads"
"""The one kind of cycle that Kafka's promises exclude."""


class GraphBuilder:
    """Collects edges between transactions."""

    def __init__(self) -> None:
        self.edges: defaultdict[int, defaultdict[int, set[Edge]]] = defaultdict(
            lambda: defaultdict(set)
        )

    def add(self, before: int, after: int, why: Edge) -> None:
        """Adds an edge; a transaction does not depend on itself."""
        if before != after:
            self.edges[before][after].add(why)


def cycles(graph: Graph) -> Iterator[Cycle]:
    """A short cycle of each strongly connected part, for each set of edges that is the first to close it."""
    known: set[frozenset[int]] = set()
    for allowed, sought in _STEPS:
        for part in components(graph, allowed):
            if part not in known or allowed == _READS:
                known.add(part)
                steps = _shortest(graph, part, allowed, sought)
                yield Cycle(_kind_of([edge for _, edge in steps]), steps)


def _kind_of(edges: Sequence[Edge]) -> str:
    if reads := edges.count(Edge.RW):
        return "G-single" if reads == 1 else "G2"
    if Edge.WW not in edges:
        return FORBIDDEN
    return "G0" if set(edges) == {Edge.WW} else "G1c"


def components(graph: Graph, allowed: frozenset[Edge]) -> list[frozenset[int]]:
    """The strongly connected parts of two or more transactions (Tarjan's, without recursion)."""

    def after(node: int) -> list[int]:
        return [to for to, why in graph.get(node, {}).items() if why & allowed]

    return _Tarjan(after).run(list(graph))


class _Tarjan:
    def __init__(self, after: Callable[[int], list[int]]) -> None:
        self._after = after
        self._index: dict[int, int] = {}
        self._low: dict[int, int] = {}
        self._stack: list[int] = []
        self._on_stack: set[int] = set()
        self._found: list[frozenset[int]] = []

    def run(self, nodes: Sequence[int]) -> list[frozenset[int]]:
        for node in nodes:
            if node not in self._index:
                self._visit(node)
        return self._found

    def _visit(self, root: int) -> None:
        path = [(root, iter(self._enter(root)))]
        while path:
            node, rest = path[-1]
            for to in rest:
                if to not in self._index:
                    path.append((to, iter(self._enter(to))))
                    break
                if to in self._on_stack:
                    self._low[node] = min(self._low[node], self._index[to])
            else:
                path.pop()
                if path:
                    before = path[-1][0]
                    self._low[before] = min(self._low[before], self._low[node])
                if self._low[node] == self._index[node]:
                    self._close(node)

    def _enter(self, node: int) -> list[int]:
        self._index[node] = self._low[node] = len(self._index)
        self._stack.append(node)
        self._on_stack.add(node)
        return self._after(node)

    def _close(self, node: int) -> None:
        part: set[int] = set()
        while node not in part:
            part.add(self._stack.pop())
        self._on_stack -= part
        if len(part) > 1:
            self._found.append(frozenset(part))


def _shortest(
    graph: Graph, part: frozenset[int], allowed: frozenset[Edge], sought: Edge
) -> tuple[tuple[int, Edge], ...]:
    """A shortest cycle through one edge: one that is there for the sought reason alone, if any is."""
    last, start = max(
        ((node, to) for node in sorted(part) for to in graph[node] if to in part),
        key=lambda ends: _rank(graph[ends[0]][ends[1]] & allowed, sought),
    )
    came: dict[int, int] = {start: start}
    queue = deque([start])
    while last not in came:
        node = queue.popleft()
        for to, why in graph.get(node, {}).items():
            if to in part and why & allowed and to not in came:
                came[to] = node
                queue.append(to)
    return _steps(graph, came, start, last, allowed)


def _rank(why: set[Edge], sought: Edge) -> int:
    """How good an edge is to begin with; the worst is none."""
    return bool(why) + (sought in why) + (why == {sought})


def _steps(
    graph: Graph, came: Mapping[int, int], start: int, last: int, allowed: frozenset[Edge]
) -> tuple[tuple[int, Edge], ...]:
    nodes = [last]
    while nodes[-1] != start:
        nodes.append(came[nodes[-1]])
    nodes.reverse()
    order = list(Edge)
    return tuple(
        (node, min(graph[node][to] & allowed, key=order.index))
        for node, to in zip(nodes, [*nodes[1:], start], strict=True)
    )
