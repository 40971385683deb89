"""A real browser on a page that attacks the admin port: nothing is changed, and nothing is read."""

from __future__ import annotations

import json
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.browser import REBOUND_NAME, PageServer, browsing
from tests.hostile.target import admin
from tests.hostile.turning_proxy import TurningProxy
from tests.support.echoless import Echoless
from tests.toolchain import require

PAGE = (Path(__file__).parent / "attack.html").read_text(encoding="utf-8")
KEPT = {"name": "kept", "match": {"topic": "none"}, "action": "twice"}

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def target(echoless: Echoless) -> Echoless:
    """A broker with one rule, which pages must neither add to nor remove."""
    require("chromium")
    url, headers = f"http://{echoless.admin_address}/faults", {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(KEPT).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201
    return echoless


def assert_untouched(target: Echoless) -> None:
    _, document = admin(target, "/faults")
    assert [rule["name"] for rule in document["rules"]] == ["kept"]


def read(found: dict[str, str]) -> dict[str, Any]:
    """The attempts whose answers the page could read, and that were no refusals."""
    return {
        name: answer
        for name, answer in found.items()
        if answer.partition(":")[0].isdecimal() and int(answer.partition(":")[0]) < 400
    }


def test_a_page_of_another_origin_gets_nothing(target: Echoless, tmp_path: Path) -> None:
    """Forms, scripts, beacons, images and frames, of a page on another port of this machine."""
    with PageServer(PAGE) as server:
        url = f"http://127.0.0.1:{server.port}/?target={target.admin_address}"
        with browsing(url, tmp_path / "profile"):
            found = server.report()
    assert len(found) > 20
    assert read(found) == {}
    assert_untouched(target)


def test_the_page_does_attack(tmp_path: Path) -> None:
    """Against a server without any defence its requests arrive: the other tests are not empty."""
    require("chromium")
    with PageServer(PAGE) as server, PageServer("") as weak:
        url = f"http://127.0.0.1:{server.port}/?target=127.0.0.1:{weak.port}"
        with browsing(url, tmp_path / "profile"):
            server.report()
        arrived = weak.requests()
    posted = {(one.content_type or "").partition(";")[0] for one in arrived if one.method == "POST"}
    assert {"text/plain", "application/x-www-form-urlencoded", ""} <= posted
    assert any(b'"form-text"' in one.body for one in arrived)
    assert any(one.method == "OPTIONS" for one in arrived)
    assert any(one.method == "GET" and one.path == "/decisions" for one in arrived)


def test_a_rebound_page_gets_nothing(target: Echoless, tmp_path: Path) -> None:
    """The page's own name and port lead to the broker once it is loaded: same origin to the browser."""
    with PageServer(PAGE) as server, TurningProxy(server.port) as proxy:
        turned = threading.Event()
        home = f"127.0.0.1:{server.port}"
        url = f"http://{REBOUND_NAME}:{proxy.port}/?rebind&home={home}"
        proxy.turn_at(b"POST /rebind", int(target.admin_address.rpartition(":")[2]), turned)
        with browsing(url, tmp_path / "profile"):
            found = server.report()
    assert turned.is_set()
    assert found["cors json"].startswith("421: ")
    assert found["cors get"].startswith("421: ")
    assert read(found) == {}
    assert_untouched(target)
