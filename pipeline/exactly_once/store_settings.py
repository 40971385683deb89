"""Settings of the store that a ledger is in: the options `ledger.*` by obstore's names, and Hadoop's as Spark has them.

What neither names, obstore finds by itself on each machine: in the environment (`AWS_ACCESS_KEY_ID`, ...), and by the roles
of instances, containers and workloads.

| store | Hadoop's names that are read |
|---|---|
| S3 | `fs.s3a.access.key`, `.secret.key`, `.session.token`, `.endpoint`, `.endpoint.region`, `.path.style.access`, `.connection.ssl.enabled`, each also as `fs.s3a.bucket.BUCKET.*` |
| Azure | `fs.azure.account.key`, `fs.azure.sas.fixed.token`, `fs.azure.account.oauth2.client.id`, `.secret`, `.endpoint`, each with `.ACCOUNT.dfs.core.windows.net`, or without |
| Google Cloud Storage | `fs.gs.auth.service.account.json.keyfile`, `google.cloud.auth.service.account.json.keyfile` |
| HDFS | `dfs.namenode.http-address` |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

STORE_PREFIX: Final = "ledger."
"""Begins the names of options that are passed to the store, in lower case."""
S3_SCHEMES: Final = frozenset({"s3", "s3a"})
AZURE_SCHEMES: Final = frozenset({"abfs", "abfss", "az", "azure", "adl"})
GOOGLE_SCHEMES: Final = frozenset({"gs", "gcs"})
"""Spark's name, and the one of pandas and fsspec."""
OBJECT_STORES: Final = S3_SCHEMES | AZURE_SCHEMES | GOOGLE_SCHEMES
WEB_SCHEMES: Final = frozenset({"webhdfs", "swebhdfs"})
HADOOP_PREFIXES: Final = (
    *("fs.s3a.", "fs.azure.", "fs.gs.", "google.cloud.auth.", "dfs.namenode.http-address"),
)
"""Begin the names of Hadoop's settings that are read."""
HADOOP_NAMES: Final = (
    *("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token", "fs.s3a.endpoint"),
    *("fs.s3a.endpoint.region", "fs.s3a.path.style.access", "fs.s3a.connection.ssl.enabled"),
    *("fs.gs.auth.service.account.json.keyfile", "google.cloud.auth.service.account.json.keyfile"),
    "dfs.namenode.http-address",
)
"""Names that are also read from files of Hadoop's configuration; others count in Spark's only."""

_S3: Final = {
    "access.key": "access_key_id",
    "secret.key": "secret_access_key",
    "session.token": "session_token",
    "endpoint.region": "region",
}
_AZURE: Final = {
    "fs.azure.account.key": "account_key",
    "fs.azure.sas.fixed.token": "sas_key",
    "fs.azure.account.oauth2.client.id": "client_id",
    "fs.azure.account.oauth2.client.secret": "client_secret",
}
_GOOGLE: Final = (
    "fs.gs.auth.service.account.json.keyfile",
    "google.cloud.auth.service.account.json.keyfile",
)
_AWS_ITSELF: Final = "s3.amazonaws.com"


@dataclass(slots=True, frozen=True)
class StoreSettings:
    """Settings of a store, of which no message shows a value."""

    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options `ledger.*`, without that prefix."""
    hadoop: Mapping[str, str] = field(default_factory=dict, repr=False)


NO_SETTINGS: Final = StoreSettings()


def store_config(uri: str, settings: StoreSettings) -> dict[str, str]:
    """Returns the configuration of obstore for a URI; options win over Hadoop's settings."""
    parts = urlsplit(uri)
    if parts.scheme in S3_SCHEMES:
        found = _s3(parts.netloc, settings.hadoop)
    elif parts.scheme in AZURE_SCHEMES:
        found = _azure(parts.netloc.rpartition("@")[2], settings.hadoop)
    else:
        key = next(filter(None, map(settings.hadoop.get, _GOOGLE)), None)
        found = {"service_account": key} if key else {}
    return found | {_short(name): value for name, value in settings.options.items()}


def _short(name: str) -> str:
    """Returns the one of obstore's names for a setting that Hadoop's are translated to."""
    for prefix in ("aws_", "azure_storage_", "azure_", "google_"):
        name = name.removeprefix(prefix)
    return name


def _s3(bucket: str, hadoop: Mapping[str, str]) -> dict[str, str]:
    def setting(name: str) -> str:
        return hadoop.get(f"fs.s3a.bucket.{bucket}.{name}") or hadoop.get(f"fs.s3a.{name}") or ""

    found = {ours: setting(name) for name, ours in _S3.items() if setting(name)}
    found["disable_bulk_delete"] = "true"  # which not all stores have
    endpoint = setting("endpoint")
    if endpoint and endpoint != _AWS_ITSELF:
        is_plain = setting("connection.ssl.enabled") == "false"
        scheme = "" if "://" in endpoint else "http://" if is_plain else "https://"
        found["endpoint"] = scheme + endpoint
        if (
            setting("path.style.access") != "true"
        ):  # obstore wants the bucket in the host's name then
            scheme, _, host = found["endpoint"].partition("://")
            found["endpoint"] = f"{scheme}://{bucket}.{host}"
            found["virtual_hosted_style_request"] = "true"
    return found


def _azure(account_host: str, hadoop: Mapping[str, str]) -> dict[str, str]:
    def setting(name: str) -> str:
        return hadoop.get(f"{name}.{account_host}") or hadoop.get(name) or ""

    found = {ours: setting(name) for name, ours in _AZURE.items() if setting(name)}
    tenant = urlsplit(setting("fs.azure.account.oauth2.client.endpoint")).path.strip("/")
    if tenant:
        found["tenant_id"] = tenant.partition("/")[0]
    return found
