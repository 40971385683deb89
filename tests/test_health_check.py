"""The image's health check, run as the image runs it, beside a broker whose admin port speaks HTTP or TLS."""

from __future__ import annotations

import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.echoless import Echoless

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[1] / "containers" / "health.py"
_TIMEOUT_S = 60.0


def check(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-IS", str(PROGRAM)],
        capture_output=True,
        text=True,
        env={f"ECHOLESS_{name.upper()}": value for name, value in environment.items()},
        timeout=_TIMEOUT_S,
        check=False,
    )


def until_it_answers(broker: Echoless, context: ssl.SSLContext | None = None) -> None:
    """Returns when the admin port has loaded its HTTP server, for which a check would ask again and again."""
    url = f"{'http' if context is None else 'https'}://{broker.admin_address}/health"
    with urllib.request.urlopen(url, context=context, timeout=_TIMEOUT_S) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("client_auth", ["none", "required"])
def test_an_admin_port_with_tls_is_asked_by_tls(tmp_path: Path, client_auth: str) -> None:
    """Whether the environment says so, the configuration file, or nothing that the check can see."""
    authority = Authority(tmp_path / "certificates")
    settings = authority.settings("ADMIN:SSL", ssl_client_auth=client_auth)
    broker = Echoless(tmp_path, settings)
    broker.start()
    address = {"admin_listen": broker.admin_address}
    try:
        until_it_answers(broker, authority.client_context(authority.issue("client")))
        by_environment = check(**address, **settings)
        assert by_environment.returncode == 0, by_environment.stderr
        config = tmp_path / "echoless.toml"
        lines = {**settings, **address}.items()
        config.write_text("".join(f'{name} = "{value}"\n' for name, value in lines))
        by_file = check(config=str(config))
        assert by_file.returncode == 0, by_file.stderr
        assert "does not speak TLS" not in broker.process.log()
        if client_auth == "none":
            by_trying = check(**address)
            assert by_trying.returncode == 0, by_trying.stderr
    finally:
        broker.kill()
    assert check(**address, **settings).returncode == 1


def test_an_admin_port_without_tls_is_asked_without(tmp_path: Path) -> None:
    """A broker that is gone is unhealthy, and the check says why."""
    broker = Echoless(tmp_path)
    broker.start()
    until_it_answers(broker)
    assert check(admin_listen=broker.admin_address).returncode == 0
    broker.kill()
    unhealthy = check(admin_listen=broker.admin_address)
    assert unhealthy.returncode == 1
    assert "no answer from the admin port" in unhealthy.stderr
