"""The public names of `echoless`, `echoless.spark` and `echoless.testing`, and the cost of importing them."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from tests.api_page import PAGE, PUBLIC, imports_for_checkers, with_names

LOADED = """
import sys
before = set(sys.modules)
import {module}
print(*(set(sys.modules) - before - sys.stdlib_module_names))
"""
WITHOUT_PYSPARK = """
import runpy, sys
sys.modules["pyspark"] = None
{program}
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("module", PUBLIC)
def test_an_import_loads_nothing_else(module: str) -> None:
    """Neither our rooms nor other packages: a name loads what it needs when it is used."""
    loaded = {name for name in run(LOADED.format(module=module)).stdout.split() if "." not in name}
    assert loaded == {"echoless"}


def test_both_modules_beside_the_first_load_only_it() -> None:
    """`echoless.spark` without PySpark, `echoless.testing` without the test kit."""
    loaded = run(LOADED.format(module="echoless.spark, echoless.testing")).stdout.split()
    assert {name for name in loaded if name.startswith("echoless")} == set(PUBLIC)


@pytest.mark.parametrize("module", PUBLIC)
def test_programs_and_type_checkers_find_the_same(module: str) -> None:
    """Each name of `__all__` is imported for checkers, and is the object that a program gets."""
    public = importlib.import_module(module)
    homes = imports_for_checkers(module)
    assert sorted(public.__all__) == public.__all__
    assert {name for name in homes if name in public.__all__} == set(public.__all__)
    for name in public.__all__:
        assert getattr(public, name) is getattr(importlib.import_module(homes[name]), name)
    assert set(public.__all__) <= set(dir(public))


@pytest.mark.parametrize("module", PUBLIC)
def test_a_name_that_is_not_public_is_not_there(module: str) -> None:
    """`hasattr` and `getattr` with a default work as for any module."""
    assert not hasattr(importlib.import_module(module), "Prodcer")


def test_a_missing_extra_is_named() -> None:
    """An import says what to install."""
    done = run(WITHOUT_PYSPARK.format(program="from echoless.spark import ExactlyOnceSink"))
    last = done.stderr.splitlines()[-1]
    assert last == (
        "ImportError: echoless.spark.ExactlyOnceSink needs pyspark: pip install 'echoless[spark]'"
    )


def test_the_jobs_name_a_missing_extra_in_one_line() -> None:
    """No traceback, and an exit status that tells."""
    program = "sys.argv = ['', 'audit']; runpy.run_module('echoless.spark', run_name='__main__')"
    done = run(WITHOUT_PYSPARK.format(program=program))
    assert (done.returncode, done.stderr) == (
        1,
        "python -m echoless.spark needs pyspark: pip install 'echoless[spark]'\n",
    )


def test_the_page_is_current() -> None:
    """`docs/api.md` says what the sources say."""
    page = PAGE.read_text(encoding="utf-8")
    assert with_names(page) == page, "run python -m tests.api_page --write"
