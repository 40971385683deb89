"""The names of a broker's listeners, as its registration and Kafka's tools show them.

A client is told, of every broker, the address of the listener that it came by itself: whoever came
by the network between the brokers stays on it, whoever came from outside never hears of it.
"""

from __future__ import annotations

from typing import Final

PLAINTEXT: Final = "PLAINTEXT"
"""The first address of `--listen`."""
EXTERNAL: Final = "EXTERNAL"
"""The second, where there is one."""
NATIVE: Final = "NATIVE"
"""`--native-listen`: msgpack, also between brokers."""

KAFKA_LISTENERS: Final = (PLAINTEXT, EXTERNAL)
"""By the order of the addresses in `--listen`."""
