"""CRC-32C without the package: the right sums, and nothing slow imported for them."""

from __future__ import annotations

import subprocess
import sys

import crc32c as package

from echoless.protocol.checksum import crc32c


def test_it_is_the_package_s_own_checksum():
    """The check value of CRC-32C, and the same sums as through the package, from any buffer."""
    assert crc32c(b"123456789") == 0xE3069283
    for data in (b"", bytes(1000), bytearray(b"abc"), memoryview(b"x" * 99)):
        assert crc32c(data) == package.crc32c(data)


def test_the_start_does_not_pay_for_the_package():
    """`importlib.metadata` is what makes the package slow to import."""
    script = "import sys, protocol.record_batch; print('importlib.metadata' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert result.stdout.strip() == "False"
