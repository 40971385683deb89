"""Namespaces, cut links and leftovers, on this machine's own kernel."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.nemesis.network import CLIENTS, Network, reason_unavailable

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def network() -> Iterator[Network]:
    if reason := reason_unavailable():
        pytest.skip(f"links cannot be cut here: {reason}")
    with Network(["one", "two"]) as network:
        yield network


_LOST_S = 1.0
"""Time after which a connection counts as lost; a refusal comes at once, or when a busy machine gets to it."""
_REFUSED_S = 60.0


def _reaches(network: Network, sender: str, receiver: str, within_s: float = _REFUSED_S) -> bool:
    """Whether a connection to an unused port is refused, and not lost on the way."""
    probe = (
        "import socket, sys\n"
        "try: socket.create_connection((sys.argv[1], 9), timeout=float(sys.argv[2]))\n"
        "except ConnectionRefusedError: sys.exit(0)\n"
        "except OSError: sys.exit(1)\n"
    )
    prefix = () if sender == CLIENTS else network.prefix(sender)
    command = [*prefix, "python3", "-c", probe, network.address(receiver), str(within_s)]
    return subprocess.run(command, check=False).returncode == 0


def test_hosts_reach_each_other_and_the_clients(network: Network) -> None:
    """Before anything is cut, every host reaches every other."""
    hosts = ["one", "two", CLIENTS]
    assert all(_reaches(network, a, b) for a in hosts for b in hosts if a != b)


def test_a_cut_link_is_silent_and_the_others_go_on(network: Network) -> None:
    """Packets are dropped, not refused; other links keep working; heal ends it."""
    network.cut("one", "two")
    assert not _reaches(network, "one", "two", _LOST_S)
    assert _reaches(network, CLIENTS, "two")
    network.heal()
    assert _reaches(network, "one", "two")


def test_a_host_is_cut_from_the_clients(network: Network) -> None:
    """The clients have no namespace; their links are cut at the host."""
    network.cut_both("one", CLIENTS)
    assert not _reaches(network, CLIENTS, "one", _LOST_S)
    assert _reaches(network, "two", "one")


def test_nothing_is_left_behind(network: Network) -> None:
    """After `close` no trace is left on the machine, and closing again is harmless."""
    address = network.address("one")
    network.close()
    network.close()
    shown = subprocess.run(["ip", "addr"], capture_output=True, text=True, check=True).stdout
    assert address.rpartition(".")[0] + "." not in shown
