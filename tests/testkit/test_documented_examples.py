"""The examples of `docs/testing.md` and the figure of `docs/trace.md` are what the page says."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from echoless.diagram import render_mermaid, render_svg
from echoless.testkit.echoless import Echoless

pytest_plugins = ["pytester"]

_DOCS = Path(__file__).parents[2] / "docs"
_FIGURE = _DOCS / "figures" / "lost-on-the-way"
_TITLE = "A request and two acknowledgements are lost"


def _blocks(page: str, language: str) -> list[str]:
    text = (_DOCS / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_figure_is_what_the_command_draws() -> None:
    """Redraw with `echoless trace FIGURE.jsonl --svg FIGURE.svg --title ...` when this fails."""
    events = [json.loads(line) for line in _FIGURE.with_suffix(".jsonl").read_text().splitlines()]
    assert render_svg(events, _TITLE) == _FIGURE.with_suffix(".svg").read_text()
    assert _blocks("trace.md", "mermaid") == [render_mermaid(events[:4])]


@pytest.mark.slow
@pytest.mark.parametrize("is_idempotent", [True, False])
def test_ten_line_example_passes_and_fails_as_told(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, is_idempotent: bool
) -> None:
    """The page's first example with a real client; without idempotence everything is stored thrice."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    example = _blocks("testing.md", "python")[0]
    assert '"enable.idempotence": True' in example
    # With the partition known and time to linger, `flush` sends one batch however slow the machine is.
    settings = f'"enable.idempotence": {is_idempotent}, "linger.ms": 60_000'
    known = 'producer.list_topics("orders")\n    sent = '
    pytester.makepyfile(
        example.replace('"enable.idempotence": True', settings).replace("sent = ", known)
    )
    # A separate process: librdkafka keeps writing to standard error after the test.
    result = pytester.runpytest_subprocess("-p", "echoless.testkit.plugin")
    if is_idempotent:
        result.assert_outcomes(passed=1)
    else:
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            ["*orders: 100 sent, 300 stored: 100 doubled", "*at 0:0, 0:100, 0:200; no decision*"]
        )


@pytest.mark.slow
def test_curl_examples_are_answered() -> None:
    """The page's requests for users of other languages are understood, in order."""
    (commands, _) = _blocks("testing.md", "sh")
    asked = [one for one in re.split(r"\n(?=curl|#|docker)", commands) if one.startswith("curl")]
    with Echoless() as echoless:
        echoless.topic("orders")
        answers = [_ask(one, echoless.broker.admin) for one in asked]
    added, listed, decided, producers, cleared = answers
    assert added["rules"][0]["name"] == "lose-acks"
    assert (listed["rules"][0]["hits"], decided["decisions"], producers["count"]) == (0, [], 0)
    assert "error" not in (cleared or {})


def _ask(command: str, admin: str) -> dict[str, Any]:
    ran = subprocess.run(
        ["bash", "-c", command.replace("127.0.0.1:8080", admin)],
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(ran.stdout or "{}")
    return answer


@pytest.mark.slow
def test_the_example_for_readers_of_transactions_passes(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With librdkafka, before the open transaction ends and after it."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (example,) = [one for one in _blocks("testing.md", "python") if "transactional_topic" in one]
    pytester.makepyfile(example)
    result = pytester.runpytest_subprocess("-p", "echoless.testkit.plugin")
    result.assert_outcomes(passed=1)


@pytest.mark.slow
def test_the_examples_of_scripts_and_barriers_pass(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With librdkafka: four faults in their order, and a commit that is held."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (example,) = [one for one in _blocks("testing.md", "python") if "faults.script(" in one]
    pytester.makepyfile(example)
    result = pytester.runpytest_subprocess("-p", "echoless.testkit.plugin")
    result.assert_outcomes(passed=2)
