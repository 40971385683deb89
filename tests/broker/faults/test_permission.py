"""`allow_faults`: who may set rules, and the error if no one may."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from echoless.broker.config.loading import load_config
from echoless.broker.faults.permission import refusal
from echoless.broker.serve import EXIT_BAD_CONFIGURATION, main
from tests.broker.admin.raw_http import ask
from tests.support.echoless import Echoless

_OPEN = ("--listen", "0.0.0.0:0", "--advertise", "127.0.0.1:9092")


@pytest.mark.parametrize(
    ("arguments", "reachable"),
    [
        ([], None),
        (["--listen", "localhost:9092", "--native-listen", "127.8.9.1:1"], None),
        (["--listen", "[::1]:9092", "--admin-listen", "[::1]:8080"], None),
        ([*_OPEN], "listen 0.0.0.0:0"),
        (["--listen", "127.0.0.1:1,10.0.0.1:1"], "listen 10.0.0.1:1"),
        (["--native-listen", "[::]:1"], "native_listen [::]:1"),
        (["--admin-listen", "10.0.0.1:8080"], "admin_listen 10.0.0.1:8080"),
        (["--admin-listen", "myhost:8080"], "admin_listen myhost:8080"),
    ],
)
def test_by_itself_a_broker_takes_rules_only_on_loopback(
    arguments: list[str], reachable: str | None
) -> None:
    """One listener that another machine can reach is enough to refuse; the operator may say so."""
    arguments = [*arguments, "--set", "admin_insecure=true"]
    refused = refusal(load_config(arguments, {}))
    assert (refused is None) == (reachable is None)
    assert refused is None or f"({reachable})" in refused
    assert refused is None or "--allow-faults" in refused
    assert refusal(load_config([*arguments, "--allow-faults"], {})) is None
    assert refusal(load_config(arguments, {"ECHOLESS_ALLOW_FAULTS": "true"})) is None
    denied = refusal(load_config([*arguments, "--allow-faults", "false"], {}))
    assert denied is not None
    assert "allow_faults=false" in denied


def test_a_broker_with_acls_takes_no_rules_by_itself() -> None:
    """The admin port knows no ACLs; the operator may say that the broker is there to be broken."""
    arguments = ["--set", "authorizer=acl"]
    refused = refusal(load_config(arguments, {}))
    assert refused is not None
    assert "ACLs" in refused
    assert refusal(load_config([*arguments, "--allow-faults"], {})) is None


@pytest.mark.slow
def test_a_file_of_rules_needs_the_permission_too(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    start_echoless: Callable[..., Echoless],
) -> None:
    """Exit code 2 and the remedy in one line; with the remedy the rules hold."""
    rules = tmp_path / "rules.json"
    rules.write_text('{"name": "slow", "action": {"type": "slow_fsync", "ms": 1}}')
    faults = ["--faults", str(rules), *("--native-listen", "0.0.0.0:0")]
    assert main(["--data-dir", str(tmp_path / "data"), *faults]) == EXIT_BAD_CONFIGURATION
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("echoless serve: --faults: faults are not allowed on this broker")
    assert "--allow-faults" in line
    broker = start_echoless(arguments=[*faults, "--allow-faults"])
    assert broker.process.pid


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"allow_faults": "false"}, "allow_faults=false"),
        ({"authorizer": "acl", "super_users": "User:ANONYMOUS"}, "ACLs"),
    ],
)
async def test_a_broker_that_takes_no_rules_says_why(
    start_echoless: Callable[..., Echoless], settings: dict[str, str], reason: str
) -> None:
    """Setting and removing are refused; reading is not, and shows the reason."""
    admin = start_echoless(settings).admin_address
    async with aiohttp.ClientSession() as session:
        for method, path in (("POST", ""), ("DELETE", ""), ("DELETE", "/x")):
            url = f"http://{admin}/faults{path}"
            async with session.request(method, url, json={"action": "twice"}) as response:
                assert response.status == 403
                assert "--allow-faults" in (await response.json())["error"]
    shown = (await ask(admin, "GET /faults HTTP/1.1", f"Host: {admin}")).document
    assert (shown["rules"], shown["allowed"]) == ([], False)
    assert reason in shown["reason"]
