"""The programs and the bytes in docs/native.md are true: each is taken from the page and run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compatibility.programs import BUILT
from tests.support.echoless import Echoless
from tests.support.in_process import Running
from tests.support.native_client import NativeConnection
from tests.toolchain import require

_PAGE = (Path(__file__).parents[3] / "docs" / "native.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)


def run(command: list[str], **environment: str) -> str:
    process = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.slow
def test_the_python_program_prints_what_the_page_says(tmp_path: Path, echoless: Echoless) -> None:
    """A test producer is twenty lines of Python."""
    (program,), (expected,) = blocks("python"), blocks("text")
    path = tmp_path / "producer.py"
    path.write_text(program)
    assert run([sys.executable, str(path), echoless.native_address]) == expected


@pytest.mark.clients
def test_the_javascript_program_prints_the_same(tmp_path: Path, echoless: Echoless) -> None:
    """Any language with a msgpack library will do."""
    require("node-client")
    (program,), (expected,) = blocks("js"), blocks("text")
    path = tmp_path / "producer.js"
    path.write_text(program)
    modules = str(BUILT / "node" / "node_modules")
    output = run(["node", str(path), echoless.native_address], NODE_PATH=modules)
    assert output == expected.replace("False", "false").replace("True", "true")


async def test_the_bytes_on_the_page_are_what_is_sent(
    native: NativeConnection, running: Running
) -> None:
    """The worked example is a real exchange, byte for byte."""
    message, answer = (bytes.fromhex(block) for block in blocks("hex"))
    await native.call("create_topic", topic="orders")
    native.send_bytes(message)
    assert await native.receive_frame() == answer[4:]
