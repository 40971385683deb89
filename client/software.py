"""The name and version by which this client presents itself to brokers (KIP-511), which count connections by them."""

from __future__ import annotations

import functools
import re
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

SOFTWARE_NAME: Final = "echoless"
NAMED_FROM: Final = 3
"""The first version of ApiVersions in which a client names its software."""
_UNKNOWN_VERSION: Final = "source"
"""The version of a source tree that is not installed."""
_REFUSED: Final = re.compile(r"[^a-zA-Z0-9.-]+")
"""Characters that brokers refuse in a version, such as the plus of a local one."""


@functools.cache
def software_fields() -> dict[str, Any]:
    """Returns the fields of an ApiVersions request with this client's name."""
    try:
        ours = version(SOFTWARE_NAME)
    except PackageNotFoundError:
        ours = _UNKNOWN_VERSION
    return {
        "client_software_name": SOFTWARE_NAME,
        "client_software_version": _REFUSED.sub("-", ours).strip("-."),
    }
