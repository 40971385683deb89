"""The table of APIs and the files of their handlers say the same."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from echoless.broker import handlers
from echoless.broker.handlers.apis import API_BY_KEY, API_BY_NAME, APIS
from echoless.broker.handlers.loaded import load
from echoless.protocol.registry import Api

ROOM = Path(handlers.__file__).parent
_TITLE = re.compile(r"(\w+) \((\d+)\), versions? (\d+)(?:-(\d+))?[ ,.:]")
of_each_api = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)


def test_no_key_and_no_name_is_there_twice() -> None:
    """And they are in the order of their keys, as ApiVersions lists them."""
    assert len(API_BY_KEY) == len(API_BY_NAME) == len(APIS)
    assert list(API_BY_KEY) == sorted(API_BY_KEY)


@of_each_api
def test_the_file_of_its_name_serves_what_is_declared(api: Api) -> None:
    """So no version is listed whose handler is another's, or missing."""
    module = import_module(f"echoless.broker.handlers.{api.name}")
    served = load(api)
    assert module.API is served.api is api
    assert module.SERVED is served
    assert served.refuse.__module__ == module.__name__


def test_every_file_that_serves_an_api_is_declared() -> None:
    """A handler that no one can ask for is a mistake."""
    serving = {one.stem for one in ROOM.glob("*.py") if "\nSERVED = Served(" in one.read_text()}
    assert serving == {api.name for api in APIS}


@of_each_api
def test_its_file_begins_with_its_name_key_and_versions(api: Api) -> None:
    """The file of a handler says which versions it serves."""
    title = _TITLE.match(import_module(f"echoless.broker.handlers.{api.name}").__doc__ or "")
    assert title, "begin with: CreateTopics (19), versions 2-7: ..."
    name, key, first, last = title.groups()
    assert name == "".join(part.capitalize() for part in api.name.split("_"))
    assert (int(key), int(first), int(last or first)) == (
        api.key,
        api.version_min,
        api.version_max,
    )


def test_handlers_of_other_apis_are_imported_with_their_first_request() -> None:
    """A start has only those that a producer asks for first."""
    code = (
        "import sys\n"
        "import echoless.broker.handlers.dispatch\n"
        "from echoless.broker.handlers.apis import APIS\n"
        "print(*(one.name for one in APIS if f'echoless.broker.handlers.{one.name}' in sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert set(done.stdout.split()) == {"api_versions", "metadata", "init_producer_id", "produce"}
