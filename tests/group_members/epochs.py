"""The records of a group of the consumer protocol, as `__consumer_offsets` has them in the end."""

from __future__ import annotations

from echoless.coordinators.groups.consumer.state import ConsumerState, read_consumer_value
from echoless.protocol.state_records.group_keys import ConsumerKey


class Epochs:
    """A replay: epochs never fall, and no partition has two owners after any batch.

    The records of a batch have one timestamp, and belong together.
    """

    def __init__(self) -> None:
        self.number = 0
        """The newest epoch."""
        self._state = ConsumerState()
        self._timestamp = -1
        self._problems: list[str] = []

    def put(self, timestamp: int, key: ConsumerKey, data: bytes | None) -> None:
        """Takes the next record."""
        if timestamp != self._timestamp:
            self._look()
            self._timestamp = timestamp
        self._state.put(key, None if data is None else read_consumer_value(key, data))

    def problems(self) -> list[str]:
        """The faults that were found."""
        self._look()
        return self._problems

    def _look(self) -> None:
        state = self._state
        if state.epoch is not None and state.number < self.number:
            self._problems.append(f"epoch {state.number} is stored after {self.number}")
        self.number = max(self.number, state.number)
        owners: dict[tuple[bytes, int], str] = {}
        for member_id, current in state.currents.items():
            for partition in (*current.assigned, *current.pending):
                other = owners.setdefault(partition, member_id)
                if other != member_id:
                    self._problems.append(
                        f"in epoch {state.number} partition {partition[1]} is that of {other} and of {member_id}"
                    )
