"""The doors: files that import something inside a function, and why.

Everywhere else imports stand at the head of a file. `tests/test_layering.py` fails for an import inside a function
of a file that has no door, and for a door that nothing uses; `python -m tests.import_graph` prints what each loads.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
ROOMS: Final = (
    *("broker", "cli", "client", "coordinators", "diagram"),
    *("pipeline", "protocol", "storage", "testkit"),
)

_COMMAND: Final = "a command's own parts: help, completion and other commands do without them"
DOORS: Final[Mapping[str, str]] = {
    # The start of a broker: what `serve` loads after its first acknowledged record, or never.
    "broker/admin/bounded_accept.py": "OpenSSL: an admin port with TLS",
    "broker/admin/readings.py": "prometheus_client: the first reading of /metrics",
    "broker/assembly.py": "log-ins, TLS, a cluster, the admin port",
    "broker/authentication/session.py": "log-ins with tokens",
    "broker/broker.py": "ACLs, producer ids bound to a user",
    "broker/cluster/stand_alone.py": "replication, of which a broker that stands alone has only an error",
    "broker/config/advertised.py": "ipaddress: addresses for networks, and IPv6 ones",
    "broker/config/loading.py": "argparse, difflib, tomllib: help, a misspelt option, a configuration file",
    "broker/config/security.py": "urllib.parse: the address of a token endpoint",
    "broker/config/values.py": "ipaddress: a host name to listen on",
    "broker/environment.py": "the coordinator: the one that is configured",
    "broker/faults/faults.py": "the first fault rule",
    "broker/groups/cluster_topics.py": "consumer groups",
    "broker/groups/topic_patterns.py": "re2: the first regular expression of a consumer group",
    "broker/groups/service.py": "consumer groups: the first request",
    "broker/transactions/service.py": "transactions: the first leadership of a part of __transaction_state",
    "broker/handlers/gate.py": "quotas: the first one",
    "broker/handlers/init_producer_id.py": "transactions: the first transactional id",
    "broker/handlers/merged_responses.py": "kio: the first response that is merged",
    "broker/metadata/config_nodes.py": "urllib.parse: a quota or user whose name needs escapes",
    "broker/network/server.py": "OpenSSL: a listener with TLS",
    "broker/partitions/cleaner.py": "the first pass: swaps, and its process",
    "broker/records/pending.py": "transactions: the first batch of one",
    "broker/serve.py": "the broker, once the configuration is known to be valid; fault rules",
    "broker/without_openssl.py": "asyncio and uvloop, behind a placeholder for ssl",
    "client/answers.py": "kio: the name of an error",
    "client/connection.py": "OpenSSL: a connection with TLS",
    "client/tokens.py": "a token endpoint",
    "coordinators/groups/consumer/topics.py": "OpenSSL: the first group of the consumer protocol",
    "protocol/acl.py": "ipaddress: the first ACL with a host",
    "protocol/bound_ids.py": "OpenSSL: producer ids bound to a user",
    "protocol/compression.py": "cramjam: the first compressed batch",
    "protocol/registry.py": "kio: the first request that is not read by hand",
    "storage/compaction/compaction.py": "the cleaner and its swaps: the first pass",
    "storage/compaction/key_map.py": "OpenSSL: the first long key of a compacted topic",
    "storage/log.py": "recovery: the first log that is found; changes, look-ups by time, a replica's producer state",
    "storage/old_segments.py": "the first segment that goes",
    "storage/os_file_system.py": "shutil: the first directory that is removed",
    "storage/producers/snapshot.py": "msgpack: the first snapshot",
    "pipeline/exactly_once/data_source.py": "the sink: the processes that plan a read do without it",
    "pipeline/exactly_once/ledger_files.py": "obstore, http.client, pyarrow: a ledger that is not in a directory",
    # The console: `echoless --help` and the completion of a word load every file of commands.
    "cli/acls.py": _COMMAND,
    "cli/admin.py": "http.client, OpenSSL: the commands that ask the admin port",
    "cli/cluster.py": "kio: the first connection to a broker",
    "cli/commands.py": "--version; serve, which has its own parser",
    "cli/completion.py": "what asks a broker for names: the completion of one",
    "cli/consume.py": _COMMAND,
    "cli/coordinator.py": _COMMAND,
    "cli/demo.py": _COMMAND,
    "cli/main.py": "serve, which starts without what all other commands need, and those commands",
    "cli/faults.py": _COMMAND,
    "cli/produce.py": _COMMAND,
    "cli/record.py": _COMMAND,
    "cli/replay.py": _COMMAND,
    "cli/scenario.py": _COMMAND,
    "cli/trace.py": _COMMAND,
    "cli/users.py": _COMMAND,
    "cli/verification/tree_content.py": "kazoo: a coordinator that is a ZooKeeper",
    # What a user may not have, or does not use.
    "src/echoless/__init__.py": "the public names: `import echoless` loads nothing",
    "src/echoless/spark/__main__.py": "the packages of the extra `spark`",
    "testkit/broker_process.py": "a broker with TLS or log-ins",
    "testkit/plugin.py": "the fixtures: pytest loads the plugin in every project that has the package",
    "testkit/security.py": "trustme, of the extra `testkit`",
}


def imports_in_functions() -> dict[str, list[str]]:
    """The modules that each file of the product imports inside a function, by path."""
    paths = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    paths += [*(ROOT / "src/echoless").glob("*.py"), *(ROOT / "src/echoless/spark").glob("*.py")]
    found = {
        path.relative_to(ROOT).as_posix(): modules_in_functions(path.read_text(encoding="utf-8"))
        for path in sorted(paths)
    }
    return {path: modules for path, modules in found.items() if modules}


def modules_in_functions(source: str) -> list[str]:
    """The modules that a file's functions import, each once."""
    functions = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    found: dict[str, None] = {}
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Import):
                found.update(dict.fromkeys(alias.name for alias in node.names))
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                found[node.module] = None
    return list(found)
