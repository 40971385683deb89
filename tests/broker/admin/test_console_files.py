"""The files of the console: who may load them, and what their policy lets a browser do."""

from __future__ import annotations

from pathlib import Path

import pytest

import echoless.broker.admin
from echoless.broker.admin.console_files import ConsoleFiles
from tests.broker.admin.admin_client import AdminClient

DIRECTORY = Path(echoless.broker.admin.__file__).parent / "console"
HTML = {"Accept": "text/html,application/xhtml+xml"}


async def test_a_browser_is_led_to_the_console(admin: AdminClient) -> None:
    """Programs still get the list of paths."""
    async with admin.session.get(admin.url + "/", headers=HTML, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, "/console")
    status, document = await admin.get("/")
    assert status == 200
    assert "/console" in document["paths"]


@pytest.mark.parametrize(
    "name", sorted(path.name for path in DIRECTORY.iterdir() if path.name != "index.html")
)
async def test_each_file_is_served_and_not_sent_again(admin: AdminClient, name: str) -> None:
    url = f"{admin.url}/console/{name}"
    async with admin.session.get(url) as answer:
        assert answer.status == 200
        assert await answer.read() == (DIRECTORY / name).read_bytes()
        assert answer.headers["Cache-Control"] == "no-cache"
        etag = answer.headers["ETag"]
    async with admin.session.get(url, headers={"If-None-Match": etag}) as again:
        assert again.status == 304
        assert await again.read() == b""


async def test_the_page_may_load_and_contact_its_own_port_alone(admin: AdminClient) -> None:
    """The policy is the console's own; that of every other answer stays stricter."""
    async with admin.session.get(admin.url + "/console") as answer:
        policy = answer.headers["Content-Security-Policy"].split("; ")
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert not any("unsafe" in rule or "http" in rule or "*" in rule for rule in policy)
    async with admin.session.get(admin.url + "/topics") as answer:
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/console/", "/console/index.html"])
async def test_other_addresses_of_the_page_lead_to_it(admin: AdminClient, path: str) -> None:
    """Its files have relative addresses, which are right at one place only."""
    async with admin.session.get(admin.url + path, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (302, "/console")


@pytest.mark.parametrize("name", ["nothing.js", "..%2fguard.py", "__init__.py"])
async def test_other_files_are_not_served(admin: AdminClient, name: str) -> None:
    status, document = await admin.get(f"/console/{name}")
    assert status == 404
    assert "has no file" in document["error"]


async def test_the_console_is_there_while_the_broker_starts(admin: AdminClient) -> None:
    """It says itself that the broker is starting."""
    admin.broker.starting = "12 of 6000 logs are open"
    assert "<script" in await admin.text("/console")
    assert (await admin.get("/overview"))[0] == 503


def test_nothing_is_read_before_a_browser_asks() -> None:
    assert ConsoleFiles()._files is None


def test_the_files_name_no_other_host() -> None:
    """Nothing is fetched from elsewhere: no address but that of SVG's name space is in the files."""
    for path in DIRECTORY.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text.replace("http://HOST", ""), path
        assert "https://" not in text, path
        assert "innerHTML" not in text, path
