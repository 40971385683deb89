"""The names of a broker's listeners, as its registration and Kafka's tools show them.

A client is given every broker's address on the listener it connected through: clients on the network
between the brokers stay on it, and clients from outside never see it.
"""

from __future__ import annotations

from typing import Final

PLAINTEXT: Final = "PLAINTEXT"
"""The first address of `--listen`."""
EXTERNAL: Final = "EXTERNAL"
"""The second address of `--listen`, if there is one."""
NATIVE: Final = "NATIVE"
"""The address of `--native-listen`: msgpack, also between brokers."""
ADMIN: Final = "ADMIN"
"""The address of `--admin-listen`: HTTP. Not registered, since no client looks for it."""

KAFKA_LISTENERS: Final = (PLAINTEXT, EXTERNAL)
"""The Kafka listeners, in the order of the addresses in `--listen`."""
LISTENERS: Final = (*KAFKA_LISTENERS, NATIVE, ADMIN)
"""All names that `listener_security_protocol_map` takes."""
