"""One console shows all brokers of a cluster, those that are gone as well."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from echoless.testkit.admin import Admin, AdminError
from echoless.testkit.native import Native
from tests.console.story import Sender
from tests.support.cluster import Cluster
from tests.toolchain import require

if TYPE_CHECKING:
    from tests.console.conftest import OpenPage

pytestmark = [pytest.mark.browser, pytest.mark.cluster, pytest.mark.slow]


def test_one_console_shows_the_cluster(tmp_path: Path, open_page: OpenPage) -> None:
    """Decisions of broker 2 are seen on broker 1's console, and so are its producers, faults and its end."""
    require("chromium")
    with Cluster(tmp_path, brokers=2) as cluster:
        cluster.start()
        one, two = cluster.brokers[1], cluster.brokers[2]
        cluster.create_topic("orders", 1, replicas=2, leader=2)
        page = open_page(one)
        page.locator("#link[data-state=live]").wait_for()
        sender = Sender(two, "orders")
        assert sender.send(0) == "NONE"
        assert sender.send(9) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        page.locator("event-list tr[data-kind=refused]").click()
        page.locator("aside dd", has_text="2").first.wait_for()
        page.get_by_role("link", name="now").click()
        page.get_by_text("1 producer remembered by broker 2").wait_for()
        Admin(two.admin_address).post("/faults", {"name": "far", "action": "twice"})
        page.locator("#strip", has_text="far (broker 2)").wait_for()
        page.locator("nav a", has_text="Topics").click()
        page.get_by_role("link", name="orders", exact=True).click()
        page.locator("td .pill.good", has_text="2").wait_for()
        page.locator("nav a", has_text="Broker").click()
        page.locator("h2", has_text="Broker 2").locator(".pill.good").wait_for()
        sender.close()
        document = Admin(one.admin_address).get("/overview", broker=2)
        assert document["broker_id"] == 2
        with pytest.raises(AdminError, match="no broker 7"):
            Admin(one.admin_address).get("/overview", broker=7)
        cluster.pause(2)
        page.locator("h2", has_text="Broker 2").locator(".pill.bad").wait_for()
        cluster.resume(2)


def test_a_native_port_tells_no_more_than_the_admin_port(tmp_path: Path) -> None:
    """A broker with tokens and no authorizer shows the others nothing: anyone could ask like them."""
    tokens = tmp_path / "tokens"
    tokens.write_text("q3bVvnsS0lD2Zx8KfWm1uA change User:operator\n")
    tokens.chmod(0o600)
    settings = {"admin_token_file": str(tokens)}
    with Cluster(tmp_path, settings, brokers=2) as cluster:
        cluster.start()
        one = Admin(cluster.brokers[1].admin_address, token="q3bVvnsS0lD2Zx8KfWm1uA")
        assert one.get("/overview")["broker_id"] == 1
        with pytest.raises(AdminError, match="its admin port asks who is there"):
            one.get("/overview", broker=2)
        answer = Native(cluster.brokers[2].native_address).call(
            "admin_read", name="connections", principal="User:anyone", address="1.2.3.4:5"
        )
        assert answer["status"] == 403
