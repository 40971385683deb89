"""Security options of jobs, by Spark's names: those of the client after `kafka.`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from echoless.client.security import Security
from echoless.client.security_options import (
    is_about_security,
    java_options,
    security_of,
)

PREFIX: Final = "kafka."
_HIDDEN: Final = "spark.sql.redaction.options.regex"
_KEYS: Final = r"(?i:\bssl\.(keystore\.key|key\.pem)|\bledger\..*(key|sas))"
"""Options with keys as text. Passwords, tokens and secrets are hidden by Spark itself."""


def is_security_option(name: str) -> bool:
    """Whether `name` (`kafka.sasl.username`) is about security."""
    key = name.lower()
    return key.startswith(PREFIX) and is_about_security(key.removeprefix(PREFIX))


def security_in(options: Mapping[str, str]) -> Security:
    """Reads the security options among a job's. Raises `SecurityOptionError`, with the client's names."""
    return security_of(
        {
            name.lower().removeprefix(PREFIX): value
            for name, value in options.items()
            if is_security_option(name)
        }
    )


def spark_options(security: Security) -> dict[str, str]:
    """Returns the options for Spark's own Kafka source. Raises `SecurityOptionError`."""
    return {PREFIX + name: value for name, value in java_options(security).items()}


def hide_keys(spark: Any) -> None:
    """Has the session hide keys in the plans that it prints; the plan of a stream has the options of its source."""
    hidden = spark.conf.get(_HIDDEN)
    if _KEYS not in hidden:
        spark.conf.set(_HIDDEN, f"{hidden}|{_KEYS}" if hidden else _KEYS)
