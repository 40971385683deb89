"""Settings of one listener alone: the tables `[listener.NAME]` of the configuration file.

What such a table does not name is as for the whole broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from echoless.broker.config.listener_names import LISTENERS

TLS_NAMES: Final = frozenset(
    {
        "ssl_keystore_location",
        "ssl_keystore_password",
        "ssl_truststore_location",
        "ssl_client_auth",
        "ssl_enabled_protocols",
        "ssl_principal_mapping_rules",
        "ssl_handshake_timeout_ms",
    }
)
"""The names that a listener with TLS takes."""
SASL_NAMES: Final = frozenset(
    {
        "sasl_enabled_mechanisms",
        "sasl_server_max_receive_size",
        "connections_max_reauth_ms",
        "connection_failed_authentication_delay_ms",
    }
)
"""The names that a listener with SASL takes."""

MOST: Final = "connections_max"
RATE: Final = "connection_creation_rate_max"
CONNECTION_NAMES: Final = frozenset({MOST, RATE})
"""The names that every listener but ADMIN takes; the limits of the whole broker hold besides."""
NAMES: Final = TLS_NAMES | SASL_NAMES | CONNECTION_NAMES

Overrides = Mapping[str, Mapping[str, Any]]
"""By listener and name: the values that differ from those of the broker."""


def listener_tables(table: object) -> dict[str, Mapping[str, object]]:
    """The names and raw values of each listener, from the table `listener`. Raises `ValueError`."""
    found: dict[str, Mapping[str, object]] = {}
    for written, names in (table if isinstance(table, Mapping) else {"": table}).items():
        listener = str(written).upper()
        if listener not in LISTENERS or listener in found or not isinstance(names, Mapping):
            raise ValueError(
                f"listener: takes a table for each listener, [listener.NAME], one of "
                f"{', '.join(LISTENERS)}, once each"
            )
        for name in names:
            if name not in NAMES:
                takes = ", ".join(sorted(NAMES))
                raise ValueError(
                    f"listener.{written}.{name}: is not set for a listener alone, "
                    f"which takes {takes}"
                )
        found[listener] = names
    return found
