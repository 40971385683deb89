"""A leak of descriptors is a failure that names what leaks."""

from __future__ import annotations

import os

import pytest

from tests.support.open_descriptors import DESCRIPTORS_MAX, complaint


@pytest.mark.slow
def test_a_leak_is_named() -> None:
    """Nothing is said below the bound."""
    assert complaint() is None
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(DESCRIPTORS_MAX)]
    try:
        said = complaint()
    finally:
        for descriptor in taken:
            os.close(descriptor)
    assert said is not None
    assert "('/dev/null', 5" in said
    assert complaint() is None
