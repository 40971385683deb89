"""The file that `--security` names, as the settings of each Python client.

Its lines are `name=value`, with librdkafka's names; see tests/compatibility/README.md.
"""

from __future__ import annotations

import ssl
from typing import Any


def read_settings(path: str | None) -> dict[str, str]:
    """Returns the settings of librdkafka; none without a file."""
    if path is None:
        return {}
    with open(path) as lines:
        return dict(line.rstrip("\n").split("=", 1) for line in lines)


def aiokafka_settings(path: str | None) -> dict[str, Any]:
    """The same for aiokafka, which takes a context of Python's for TLS."""
    given = read_settings(path)
    found = _log_in(given)
    if "ssl.ca.location" in given:
        context = ssl.create_default_context(cafile=given["ssl.ca.location"])
        if "ssl.certificate.location" in given:
            context.load_cert_chain(given["ssl.certificate.location"])
        found["ssl_context"] = context
    return found


def kafka_python_settings(path: str | None) -> dict[str, Any]:
    """The same for kafka-python."""
    given = read_settings(path)
    names = {"ssl_cafile": "ssl.ca.location", "ssl_certfile": "ssl.certificate.location"}
    return _log_in(given) | {name: given[one] for name, one in names.items() if one in given}


def _log_in(given: dict[str, str]) -> dict[str, Any]:
    """The settings that both name alike."""
    names = {
        "security_protocol": "security.protocol",
        "sasl_mechanism": "sasl.mechanism",
        "sasl_plain_username": "sasl.username",
        "sasl_plain_password": "sasl.password",
    }
    return {name: given[one] for name, one in names.items() if one in given}
