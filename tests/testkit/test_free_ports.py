"""Ports are given out once, in one process and over several."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from echoless.testkit import free_ports
from echoless.testkit.free_ports import free_address

COUNT = 300
PROGRAM = f"""
from echoless.testkit.free_ports import free_address
print(*(free_address() for _ in range({COUNT})), flush=True)
input()
"""


@pytest.mark.slow
def test_no_port_is_given_twice() -> None:
    """Not by this process, nor by three others that run at the same time."""
    others = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    addresses = [free_address() for _ in range(COUNT)]
    for other in others:
        assert other.stdout is not None
        addresses += other.stdout.readline().split()
    for other in others:
        other.communicate("\n")
    assert len(set(addresses)) == len(addresses) == 4 * COUNT


@pytest.mark.slow
def test_a_process_that_ends_gives_its_ports_back() -> None:
    """Two processes, one after the other, get more ports than there are."""
    few = f"""
from echoless.testkit import free_ports as module
module._PORTS, module._TRIES = range(31_000, {31_000 + COUNT + 100}), {COUNT + 100}
"""
    for _ in range(2):
        ended = subprocess.run(
            [sys.executable, "-c", few + PROGRAM],
            input="\n",
            capture_output=True,
            text=True,
            check=True,
        )
        assert len(set(ended.stdout.split())) == COUNT


def test_file_of_claims_that_cannot_be_opened_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not that every port is taken; and a link that somebody else has put there is not followed."""
    monkeypatch.setattr(free_ports, "_CLAIMS_IN", tmp_path)
    monkeypatch.setattr(free_ports, "_claims", free_ports._claims.__wrapped__)
    place = tmp_path / f"echoless-test-ports-{os.getuid()}"
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="echoless-test-ports"):
        free_address()
    assert not (tmp_path / "elsewhere").exists()
