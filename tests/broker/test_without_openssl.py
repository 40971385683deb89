"""A broker does not load what it hardly ever uses, OpenSSL above all; a later import gives the real one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from echoless.broker.without_openssl import loop_factory


def _run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_asyncio_and_uvloop_do_not_load_openssl() -> None:
    """They import it on their own; afterwards nothing stands in its place."""
    _run(
        "from echoless.broker.without_openssl import import_asyncio, loop_factory\n"
        "import sys\n"
        "import_asyncio()\n"
        "loop_factory(speaks_tls=False)().close()\n"
        "assert not {'_ssl', 'ssl'} & set(sys.modules)\n"
        "import ssl\n"
        "assert ssl.create_default_context().check_hostname\n"
    )


def test_processes_can_be_started_by_a_loop_made_so() -> None:
    """No broker does, but tests run brokers in their own process."""
    _run(
        "from echoless.broker.without_openssl import import_asyncio, loop_factory\n"
        "import_asyncio()\n"
        "import asyncio, sys\n"
        "async def main():\n"
        "    process = await asyncio.create_subprocess_exec(sys.executable, '-c', 'print(7)',\n"
        "        stdout=asyncio.subprocess.PIPE)\n"
        "    assert (await process.communicate())[0] == b'7\\n'\n"
        "with asyncio.Runner(loop_factory=loop_factory(speaks_tls=False)) as runner:\n"
        "    runner.run(main())\n"
    )


def test_a_loop_without_tls_refuses_a_context() -> None:
    """A connection that is to be encrypted must not be made in plain."""
    _run(
        "from echoless.broker.without_openssl import import_asyncio, loop_factory\n"
        "import_asyncio()\n"
        "loop = loop_factory(speaks_tls=False)()\n"
        "import asyncio, ssl\n"
        "context = ssl.create_default_context()\n"
        "for call in (\n"
        "    loop.create_server(asyncio.Protocol, '127.0.0.1', 0, ssl=context),\n"
        "    loop.start_tls(None, None, context),\n"
        "):\n"
        "    try:\n"
        "        loop.run_until_complete(call)\n"
        "    except TypeError as error:\n"
        "        assert 'SSLContext' in str(error), error\n"
        "    else:\n"
        "        raise AssertionError('it was taken')\n"
    )


def test_a_name_that_another_uvloop_takes_is_that_of_the_real_module() -> None:
    """An upgrade of uvloop costs memory, not the start."""
    _run(
        "import sys\n"
        "from echoless.broker.without_openssl import _as_ssl, _NoTls\n"
        "with _as_ssl(_NoTls('ssl')):\n"
        "    from ssl import HAS_ALPN, HAS_SNI\n"
        "import ssl\n"
        "assert ssl.HAS_ALPN is HAS_ALPN and ssl.SSLContext.__module__ == 'ssl'\n"
    )


@pytest.mark.parametrize("speaks_tls", [False, True])
def test_modules_that_are_loaded_stay(*, speaks_tls: bool) -> None:
    """A process that has `ssl` before it makes a loop keeps it."""
    ssl = pytest.importorskip("ssl")
    loop_factory(speaks_tls=speaks_tls)().close()
    assert sys.modules["ssl"] is ssl
