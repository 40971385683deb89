"""Users in the coordinator itself, for `echoless users` while no broker runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from echoless.broker.authentication.user_nodes import alter_user, credentials_in, read_users
from echoless.broker.config.loading import Config
from echoless.broker.environment import this_machine
from echoless.broker.handlers.describe_user_scram_credentials import SCRAM_IDS
from echoless.broker.metadata.config_nodes import is_storable
from echoless.broker.tree.node_tree import CoordinationError, NodeTree
from echoless.cli.coordinator_config import coordinator_config
from echoless.cli.errors import CommandError
from echoless.protocol.errors import KafkaError
from echoless.protocol.sasl.scram import credential_of
from echoless.storage import paths
from echoless.storage.file_system import LockHeldError, StorageError
from echoless.storage.os_file_system import OsFileSystem

Result = TypeVar("Result")
Where = tuple[str | None, str | None]
"""A data directory, and a coordinator."""


def alter_in_tree(
    where: Where,
    name: str,
    deletions: list[dict[str, Any]],
    upsertions: list[dict[str, Any]],
) -> None:
    """Makes the changes of one user, all or none. Raises `CommandError`."""
    if not is_storable(name):
        raise CommandError(f"a user cannot be called {name!r}")
    credentials = {}
    for one in upsertions:
        mechanism = SCRAM_IDS[one["mechanism"]]
        credentials[mechanism] = credential_of(
            mechanism, one["salted_password"], one["salt"], one["iterations"]
        )
    removed = [SCRAM_IDS[one["mechanism"]] for one in deletions]
    _in_tree(where, lambda tree: alter_user(tree, name, credentials, removed))


def read_from_tree(where: Where) -> list[dict[str, Any]]:
    """The users that have a credential, by name. Raises `CommandError`."""
    users = _in_tree(where, read_users)
    found = [(name, credentials_in(config)) for name, config in sorted(users.items())]
    return [
        {"user": name, "credentials": {str(one): c.iterations for one, c in credentials.items()}}
        for name, credentials in found
        if credentials
    ]


def _in_tree(where: Where, work: Callable[[NodeTree], Awaitable[Result]]) -> Result:
    config = coordinator_config(*where)
    try:
        with _locked(config):
            return asyncio.run(_work(config, work))
    except (CoordinationError, StorageError, KafkaError) as error:
        raise CommandError(str(error)) from error


@contextmanager
def _locked(config: Config) -> Iterator[None]:
    """Keeps brokers from the data directory, which is made if there is none; ZooKeeper needs no lock."""
    if config.zookeeper_hosts is not None:
        yield
        return
    Path(config.data_dir).mkdir(parents=True, exist_ok=True)
    fs = OsFileSystem()
    try:
        lock = fs.lock(paths.join(config.data_dir, paths.LOCK), "echoless users")
    except LockHeldError as error:
        raise CommandError(
            f"{config.data_dir} is in use by {error.holder}; ask that broker (--bootstrap-server), "
            "or stop it first"
        ) from error
    try:
        yield
    finally:
        lock.release()


async def _work(config: Config, work: Callable[[NodeTree], Awaitable[Result]]) -> Result:
    tree = await this_machine().open_tree(config)
    try:
        return await work(tree)
    finally:
        await tree.close()
