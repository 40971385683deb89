"""The pytest plugin, used as its users do: in a separate pytest."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

_PRODUCER = """
    from contextlib import closing

    from echoless.testkit.scripted_producer import NoAnswerError, ScriptedBatch, ScriptedProducer

    def send(echoless, topic, *batches, timeout_s=10):
        with closing(ScriptedProducer.open(echoless.bootstrap_servers)) as producer:
            for base_sequence, values in batches:
                producer.send(ScriptedBatch(topic, 0, 4000, 0, base_sequence, values))
                try:
                    producer.receive(timeout_s=timeout_s)
                except NoAnswerError:
                    pass
"""


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A directory of tests; the plugin is loaded by name, whether it is installed or not."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(_PRODUCER)
    return pytester


def _run(inner: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return inner.runpytest_inprocess(
        "-p", "echoless.testkit.plugin", "--strict-markers", *arguments
    )


@pytest.mark.slow
def test_passing_test_of_ten_lines(inner: pytest.Pytester) -> None:
    """A lost acknowledgement, a repeat, and the proof that it is stored once."""
    inner.makepyfile(
        """
        from conftest import send

        def test_repeat_is_stored_once(echoless):
            topic = echoless.topic()
            with echoless.faults.drop_responses(times=1) as lost:
                send(echoless, topic, (0, (b"a", b"b")), timeout_s=0.2)
                lost.wait_for_hits(1)
            send(echoless, topic, (0, (b"a", b"b")), (2, (b"c",)))
            echoless.assert_exactly_once(topic, ["a", "b", "c"])
        """
    )
    _run(inner).assert_outcomes(passed=1)


@pytest.mark.slow
def test_failure_tells_records_and_decisions(inner: pytest.Pytester) -> None:
    """Which records are lost, doubled, who stored them, and what was decided before; with a picture."""
    inner.makepyfile(
        """
        from conftest import send

        def test_two_producers(echoless):
            topic = echoless.topic("orders")
            send(echoless, topic, (0, (b"a",)), (1, (b"a",)), (9, (b"b",)))
            echoless.assert_exactly_once(topic, ["a", "b"])
        """
    )
    result = _run(inner, "--echoless-traces", "traces")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*orders: 2 sent, 2 stored: 1 lost, 1 doubled",
            "*lost: b'b'",
            "*doubled: b'a'",
            "*at 0:1, sequence 1 of producer 4000 epoch 0, client *",
            "*echoless decisions*",
            "*refused: 45 OUT_OF_ORDER_SEQUENCE_NUMBER; *window*0-0 1-1*",
            "*echoless trace*",
        ]
    )
    (picture,) = inner.path.glob("traces/*.svg")
    assert picture.read_text().startswith("<svg")


@pytest.mark.slow
def test_settings_come_from_the_marker_and_the_ini_file(inner: pytest.Pytester) -> None:
    """The nearest marker wins over the class's, and both over the ini file."""
    inner.makeini(
        "[pytest]\necholess_settings =\n    num_partitions=2\n    message_max_bytes=2000\n"
    )
    inner.makepyfile(
        """
        import pytest

        @pytest.mark.echoless(num_partitions=4, auto_create_topics_enable=False)
        class TestSettings:
            @pytest.mark.echoless(num_partitions=3)
            def test_settings(self, echoless):
                echoless.topic("t", partitions=-1)
                (topic,) = echoless.admin.get("/topics")["topics"]
                assert len(topic["partitions"]) == 3

            def test_positions_are_refused(self, request):
                request.node.add_marker(pytest.mark.echoless("commit"))
                with pytest.raises(pytest.UsageError, match="by name"):
                    request.getfixturevalue("echoless")
        """
    )
    _run(inner).assert_outcomes(passed=2)


@pytest.mark.slow
def test_session_broker_is_shared_and_reports_only_the_test_that_failed(
    inner: pytest.Pytester,
) -> None:
    """Topics stay between tests; what earlier tests did is not in the report of a later one."""
    inner.makepyfile(
        """
        from conftest import send

        def test_first(echoless_session):
            send(echoless_session, echoless_session.topic("first"), (0, (b"a",)))

        def test_second(echoless_session):
            assert echoless_session.records("first")
            send(echoless_session, echoless_session.topic("second"), (70, (b"a",)))
            assert False
        """
    )
    result = _run(inner)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*echoless decisions*", "*A 70*"])
    result.stdout.no_fnmatch_line("*first-0*")


@pytest.mark.slow
def test_broker_that_died_leaves_its_log_in_the_report(inner: pytest.Pytester) -> None:
    """A test that fails without a living broker still says something about it."""
    inner.makepyfile(
        """
        def test_dies(echoless):
            echoless.broker.kill()
            assert False
        """
    )
    result = _run(inner)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*- echoless -*", "http://*/decisions*"])


@pytest.mark.slow
def test_block_can_be_recorded(inner: pytest.Pytester) -> None:
    """A recording has the window before each append."""
    inner.makepyfile(
        """
        from conftest import send

        def test_record(echoless):
            topic = echoless.topic()
            with echoless.record(topic=topic) as recorder:
                send(echoless, topic, (0, (b"a",)), (1, (b"b",)))
            assert [event["window"] for event in recorder.events] == [[], [[0, 0]]]
        """
    )
    _run(inner).assert_outcomes(passed=1)


@pytest.mark.slow
def test_plugin_imports_nothing_before_it_is_used() -> None:
    """Every pytest of the environment loads it: it must cost them nothing."""
    program = (
        "import sys, pytest; before = set(sys.modules); import echoless.testkit.plugin; "
        "print(sorted(set(sys.modules) - before))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "['echoless', 'echoless.testkit', 'echoless.testkit.plugin']"


def test_plugin_is_registered_where_echoless_is_installed() -> None:
    """pytest finds it by the name `echoless`."""
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert (
        '[project.entry-points.pytest11]\necholess = "echoless.testkit.plugin"'
        in project.read_text()
    )
    for found in entry_points(group="pytest11", name="echoless"):
        assert found.value == "echoless.testkit.plugin"


@pytest.mark.slow
def test_rule_that_never_struck_fails_the_test(inner: pytest.Pytester) -> None:
    """Named with its counts, whether it is still there or removed; of a script each step. Others are optional."""
    inner.makepyfile(
        """
        from conftest import send

        def test_misses(echoless):
            with echoless.faults.drop_responses(topic="order"):
                send(echoless, echoless.topic("orders"), (0, (b"a",)))
            echoless.faults.add("twice", name="late", match={"api": "produce"}, nth=5)
            echoless.faults.add_script("twice", "close_after", name="s", match={"api": "produce"})
            send(echoless, "orders", (1, (b"b",)))

        def test_strikes(echoless):
            with echoless.faults.rule("twice", match={"api": "produce"}) as rule:
                send(echoless, echoless.topic("orders"), (0, (b"a",)))
            assert (rule.hits, rule.seen) == (1, 1)

        def test_is_optional(echoless):
            with echoless.faults.rule("twice", optional=True):
                pass

        def test_fails_for_its_own_reason(echoless):
            with echoless.faults.rule("twice"):
                assert False, "own reason"

        def test_killed_broker_is_not_judged(echoless):
            echoless.faults.add("twice")
            echoless.broker.kill()
        """
    )
    result = _run(inner)
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*AssertionError: fault rules that never struck:",
            "*fault-1: drop_response later=wait (api=produce, topic=order): nothing matched, none struck",
            "*late: twice (api=produce, nth=5): 1 matched, none struck",
            "*s, step 2 of 2: close_after (api=produce, times=1): nothing matched, none struck",
            "*optional=True*",
        ]
    )
    result.stdout.fnmatch_lines(["*own reason*"])


@pytest.mark.slow
def test_ini_option_lets_rules_miss(inner: pytest.Pytester) -> None:
    """For suites that come from a release before."""
    inner.makeini("[pytest]\necholess_strict = false\n")
    inner.makepyfile(
        """
        def test_misses(echoless):
            echoless.faults.add("twice")
        """
    )
    _run(inner).assert_outcomes(passed=1)


@pytest.mark.slow
def test_session_broker_is_judged_by_the_rules_of_each_test(inner: pytest.Pytester) -> None:
    """A miss of an earlier test is not the fault of a later one."""
    inner.makepyfile(
        """
        def test_misses(echoless_session):
            with echoless_session.faults.rule("twice"):
                pass

        def test_sets_none(echoless_session):
            pass
        """
    )
    _run(inner).assert_outcomes(passed=1, failed=1)


@pytest.mark.slow
def test_requests_are_held_until_the_test_releases_them(inner: pytest.Pytester) -> None:
    """A test waits until one is held; and what it waits for has a limit."""
    inner.makepyfile(
        """
        import threading
        import pytest
        from conftest import send

        def test_holds(echoless):
            topic = echoless.topic()
            with echoless.faults.hold_requests(topic=topic, times=1) as held:
                thread = threading.Thread(target=send, args=(echoless, topic, (0, (b"a",))))
                thread.start()
                held.wait_until_held()
                assert (echoless.records(topic), held.held) == ([], 1)
                assert held.release() == 1
                thread.join()
                with pytest.raises(TimeoutError, match="no 1 held within 0.05 s"):
                    held.wait_until_held(timeout_s=0.05)
            assert held.release() == 0
            echoless.assert_exactly_once(topic, ["a"])
        """
    )
    _run(inner).assert_outcomes(passed=1)


_FAILING = """
    from conftest import send

    def test_two_producers(echoless):
        topic = echoless.topic("orders")
        with echoless.faults.drop_responses(times=1) as lost:
            send(echoless, topic, (0, (b"a",)), timeout_s=0.2)
        echoless.faults.add("twice", name="unused", match={"topic": "<b>"})
        assert lost.hits == 7, "<script>no</script>"

    def test_passes(echoless):
        send(echoless, echoless.topic(), (0, (b"a",)))

    def test_has_no_broker():
        assert False
"""


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("-p", "xdist", "-n", "2")], ids=["alone", "xdist"])
def test_failed_test_leaves_a_page(inner: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    """One for each failed test with a broker, and its path in the summary; none for others."""
    inner.makeini("[pytest]\necholess_pages = reports/pages\n")
    inner.makepyfile(_FAILING)
    result = inner.runpytest_subprocess("-p", "echoless.testkit.plugin", *arguments)
    result.assert_outcomes(passed=1, failed=2)
    (page,) = inner.path.glob("reports/pages/*")
    result.stdout.fnmatch_lines(["*echoless: what the brokers of failed tests did*", f"*{page}"])
    text = page.read_text()
    for said in ("test_two_producers", "fault-1", "unused", "never struck", "answer lost"):
        assert said in text
    result.stdout.fnmatch_lines(["fault-1 lost an answer to *, and nothing of it follows."])
    assert "nothing of it follows" in text
    assert "<svg" in text
    assert "POST /faults [" in text
    assert "<script" not in text


@pytest.mark.slow
def test_no_page_is_written_for_tests_that_pass(inner: pytest.Pytester) -> None:
    """Not even the folder; and none at all where the ini file names no folder."""
    inner.makepyfile("def test_passes(echoless): pass")
    result = _run(inner)
    result.assert_outcomes(passed=1)
    assert not (inner.path / "echoless-failures").exists()
    inner.makeini("[pytest]\necholess_pages =\n")
    inner.makepyfile("def test_fails(echoless): assert False")
    result = _run(inner)
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*what the brokers*")
    assert not list(inner.path.glob("**/*.html"))


@pytest.mark.slow
def test_page_of_a_broker_that_died_has_its_log(inner: pytest.Pytester) -> None:
    """In the folder that is the default."""
    inner.makepyfile(
        """
        def test_dies(echoless):
            echoless.broker.kill()
            assert False
        """
    )
    _run(inner).assert_outcomes(failed=1)
    (page,) = inner.path.glob("echoless-failures/*.html")
    assert "does not answer" in page.read_text()
    assert "<h3>Log</h3>" in page.read_text()
