"""The effect of a missing tool on a test: skipped by name, or failed under CI."""

from __future__ import annotations

import pytest

from tests import toolchain
from tests.support.tool import Tool, ToolError


def _missing(name: str, needs: tuple[str, ...] = ()) -> Tool:
    def prepare() -> None:
        raise ToolError("the shop is closed")

    return Tool(
        name=name,
        used_by="the tests of hammers",
        is_present=lambda: False,
        prepare=prepare,
        needs=needs,
    )


@pytest.fixture(autouse=True)
def _two_missing_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"hammer": _missing("hammer"), "nail": _missing("nail", ("hammer",))}
    monkeypatch.setattr(toolchain, "tools", lambda: found)


def test_a_test_without_its_tool_is_skipped_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names the tool and who needs it."""
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"hammer is missing \(the tests of hammers\)"):
        toolchain.require("hammer")


def test_a_test_without_its_tool_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """With CI=true nothing may go untested silently."""
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="hammer is missing"):
        toolchain.require("hammer")


def test_a_marker_asks_for_its_tools(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """No test that has the marker can forget to; others are not touched."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(toolchain, "_TOOLS_OF_MARKER", {"slow": ("hammer",)})
    test: pytest.Item = request.node
    toolchain.require_for(test)
    test.add_marker("slow")
    with pytest.raises(pytest.skip.Exception, match="hammer is missing"):
        toolchain.require_for(test)


def test_what_needs_a_missing_tool_is_not_tried() -> None:
    """Each missing tool is listed with its own reason."""
    reasons = toolchain.prepare_all()
    assert reasons == {"hammer": "the shop is closed", "nail": "needs hammer"}
