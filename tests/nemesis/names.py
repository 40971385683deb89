"""A name service for the hosts of a `Network`, which can be lost.

Every host knows the others by name, from its own `/etc/hosts` (`ip netns exec` puts
`/etc/netns/<namespace>/hosts` in its place). After `lose` the file is empty, and a lookup asks a
name server that never answers: the resolver takes ten seconds or more to give up, as in a network
whose name server left before its hosts.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.nemesis.network import CLIENTS, Network

NAME_SERVER = "names"
_ETC = Path("/etc/netns")


class Names:
    """Names for all hosts of `network`, which must have a host called `NAME_SERVER`."""

    def __init__(self, network: Network, hosts: Sequence[str]) -> None:
        self._network = network
        self._hosts = [host for host in hosts if host != NAME_SERVER]
        for host in self._hosts:
            directory = self._directory(host)
            directory.mkdir(parents=True)
            (directory / "resolv.conf").write_text(f"nameserver {network.address(NAME_SERVER)}\n")
            (directory / "hosts").write_text("")
        self.give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def lose(self) -> None:
        """Makes every name unresolvable, silently, until the network is healed."""
        for host in self._hosts:
            self._network.cut(host, NAME_SERVER)
        self._write("")

    def give_back(self) -> None:
        """Makes every host known to every other again."""
        lines = [f"{self._network.address(host)} {host}" for host in (*self._hosts, CLIENTS)]
        self._write("\n".join(["127.0.0.1 localhost", *lines, ""]))

    def close(self) -> None:
        """Removes the files; may be called repeatedly."""
        for host in self._hosts:
            shutil.rmtree(self._directory(host), ignore_errors=True)

    def _write(self, text: str) -> None:
        """Writes in place: a namespace sees the file that existed when its first process began."""
        for host in self._hosts:
            (self._directory(host) / "hosts").write_text(text)

    def _directory(self, host: str) -> Path:
        return _ETC / self._network.namespace(host)
