"""One broker's side of a history: what it has assigned to each client, under its own topic ids."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from tests.oracle.consumers.chooser import JOINS, Step
from tests.oracle.messages import plain, request_of
from tests.oracle.side import Side
from tests.support.raw_client import RawConnection

Partitions = frozenset[tuple[str, int]]
NOTHING: Final[Partitions] = frozenset()


class ConsumerAsker:
    """Asks one broker, one request after the other, and takes what it assigns at once."""

    def __init__(self, side: Side, connection: RawConnection, owned: dict[str, Partitions]) -> None:
        self.owned = owned
        """By member id."""
        self._side = side
        self._connection = connection
        self._ids = side.topic_ids
        self._names = {topic_id: name for name, topic_id in side.topic_ids.items()}

    def release(self) -> None:
        """Gives the connection back to its side."""
        self._side.give_back(self._connection)

    async def ask(self, step: Step) -> Any:
        """Sends the request of a step; the answer as plain values, with names of topics."""
        values = dict(step.values)
        member_id = str(values.get("member_id", ""))
        if step.api == "consumer_group_heartbeat":
            values["topic_partitions"] = self._named(step.owned, member_id)
        self._connection.send_request(request_of(step.api, step.version, values))
        response = await self._connection.receive_response(step.api, step.version)
        answer = self._plain(response)
        if step.api == "consumer_group_heartbeat" and answer["error_code"] == 0:
            self._take(member_id, values["member_epoch"], answer)
        return answer

    def _named(self, what: str, member_id: str) -> list[dict[str, Any]] | None:
        owned = self.owned.get(member_id, NOTHING)
        match what:
            case "nothing said":
                return None
            case "none":
                return []
            case "some":
                owned = frozenset({("t", 0)})
        topics: dict[str, list[int]] = {}
        for name, partition in sorted(owned):
            topics.setdefault(name, []).append(partition)
        return [
            {"topic_id": self._ids[name], "partitions": partitions}
            for name, partitions in topics.items()
        ]

    def _take(self, member_id: str, epoch: int, answer: Any) -> None:
        if epoch < JOINS:
            self.owned.pop(member_id, None)
        elif answer["assignment"] is not None:
            self.owned[member_id] = frozenset(answer["assignment"])

    def _plain(self, response: Any) -> Any:
        """Plain values, in which assignments are lists of topic and partition."""
        if dataclasses.is_dataclass(response) and hasattr(response, "topic_partitions"):
            rows = response.topic_partitions
            return sorted(
                (self._names.get(row.topic_id, "?"), index)
                for row in rows
                for index in row.partitions
            )
        if dataclasses.is_dataclass(response):
            return {
                field.name: self._plain(getattr(response, field.name))
                for field in dataclasses.fields(response)
                if field.name not in {"throttle_time", "error_message", "client_host"}
            }
        if isinstance(response, tuple):
            return sorted((self._plain(one) for one in response), key=repr)
        return plain(response, str)
