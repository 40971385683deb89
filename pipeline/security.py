"""Security options of jobs, by Spark's names: those of the client after `kafka.`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from echoless.client.security import Security
from echoless.client.security_options import (
    is_about_security,
    java_options,
    security_of,
)

PREFIX: Final = "kafka."


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
