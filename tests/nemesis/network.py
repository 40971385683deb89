"""Separate hosts for servers: network namespaces on one bridge, whose links can be cut.

    with Network(["one", "two"]) as network:
        network.prefix("one")        # ("ip", "netns", "exec", ...): a command run there
        network.cut("one", "two")    # packets from one to two are dropped, no connection is reset
        network.heal()

The test itself is the host `CLIENTS`: the bridge has its own address. Needs root, `ip` and
`iptables`. Names carry the process id, and leftovers of a dead process are removed by the next.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import random
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Self

CLIENTS = "clients"
_NAMESPACE = re.compile(r"echoless-(\d+)-(\d+)")
_CLIENTS_NUMBER = 254
_SUBNETS_TRIED_MAX = 100


class NetworkError(Exception):
    """A command that builds or cuts failed; carries its output."""


class Network:
    """One bridge with a namespace per host; all hosts reach each other until a link is cut."""

    def __init__(self, hosts: Sequence[str]) -> None:
        remove_leftovers()
        self._numbers = {host: number for number, host in enumerate(hosts, start=1)}
        assert len(self._numbers) < _CLIENTS_NUMBER
        self._numbers[CLIENTS] = _CLIENTS_NUMBER
        self._bridge = f"echo{os.getpid()}"
        self._subnet = _free_subnet()
        atexit.register(self.close)
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def address(self, host: str) -> str:
        """The host's IPv4 address."""
        return f"{self._subnet}.{self._numbers[host]}"

    def namespace(self, host: str) -> str:
        """The name that `ip` uses for the host."""
        return f"echoless-{os.getpid()}-{self._numbers[host]}"

    def prefix(self, host: str) -> tuple[str, ...]:
        """The prefix of a command on the host; the process id stays that of the started process."""
        return ("ip", "netns", "exec", self.namespace(host))

    def cut(self, sender: str, receiver: str) -> None:
        """Drops every packet in that direction from now on."""
        if receiver == CLIENTS:  # the clients have no namespace: drop the packet where it leaves
            self._filter(sender, "-A", "OUTPUT", "-d", self.address(receiver), "-j", "DROP")
        else:
            self._filter(receiver, "-A", "INPUT", "-s", self.address(sender), "-j", "DROP")

    def cut_both(self, one: str, other: str) -> None:
        """Drops everything between the two."""
        self.cut(one, other)
        self.cut(other, one)

    def heal(self) -> None:
        """Lets every packet through again."""
        for host in self._hosts:
            self._filter(host, "-F")

    def close(self) -> None:
        """Removes everything; may be called repeatedly, and after a failure."""
        atexit.unregister(self.close)
        for host in self._hosts:
            _try("ip", "netns", "del", self.namespace(host))
        _try("ip", "link", "del", self._bridge)

    @property
    def _hosts(self) -> list[str]:
        return [host for host in self._numbers if host != CLIENTS]

    def _build(self) -> None:
        _run("ip", "link", "add", self._bridge, "type", "bridge")
        _run("ip", "addr", "add", f"{self.address(CLIENTS)}/24", "dev", self._bridge)
        _run("ip", "link", "set", self._bridge, "up")
        for host in self._hosts:
            self._add_host(host)

    def _add_host(self, host: str) -> None:
        namespace = self.namespace(host)
        outside = f"{self._bridge}v{self._numbers[host]}"
        _run("ip", "netns", "add", namespace)
        inside = ("name", "eth0", "netns", namespace)
        _run("ip", "link", "add", outside, "type", "veth", "peer", *inside)
        _run("ip", "link", "set", outside, "master", self._bridge, "up")
        _run("ip", "-n", namespace, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run("ip", "-n", namespace, "link", "set", device, "up")

    def _filter(self, host: str, *rule: str) -> None:
        _run(*self.prefix(host), "iptables", "-w", *rule)


@functools.cache
def reason_unavailable() -> str | None:
    """Why links cannot be cut on this machine; None if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "iptables"):
        if shutil.which(program) is None:
            return f"`{program}` is not installed"
    try:
        with Network(["probe"]) as network:
            network.cut("probe", CLIENTS)
    except NetworkError as error:
        return str(error)
    return None


def remove_leftovers() -> None:
    """Removes the namespaces and bridges of processes that are no longer there."""
    with contextlib.suppress(NetworkError, OSError):
        for found in _NAMESPACE.finditer(_run("ip", "netns", "list")):
            if not _is_alive(int(found[1])):
                _try("ip", "netns", "del", found[0])
                _try("ip", "link", "del", f"echo{found[1]}")


def _is_alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")  # noqa: PTH110 - a question to the kernel, not to a disk


def _free_subnet() -> str:
    """The first three numbers of a private network in which this machine has no address."""
    taken = _run("ip", "-4", "addr", "show")
    for _ in range(_SUBNETS_TRIED_MAX):
        subnet = f"10.{random.randint(64, 191)}.{random.randint(0, 255)}"
        if f"inet {subnet}." not in taken:
            return subnet
    raise NetworkError("no free subnet in 10.64.0.0 to 10.191.255.255")


def _run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if result.returncode != 0:
        raise NetworkError(f"`{' '.join(command)}`: {(result.stderr or result.stdout).strip()}")
    return result.stdout


def _try(*command: str) -> None:
    with contextlib.suppress(NetworkError, OSError):
        _run(*command)
