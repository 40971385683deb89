"""`echoless produce` and `echoless consume`, as processes in a shell's pipe, against a real broker."""

from __future__ import annotations

import datetime
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command
from tests.support.certificates import Authority
from tests.support.echoless import Echoless
from tests.support.token_server import TokenServer
from tests.support.tokens import Issuer

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Echoless]:
    running = Echoless(tmp_path_factory.mktemp("broker"), {"num_partitions": "2"})
    running.start()
    yield running
    running.kill()


@pytest.fixture(autouse=True)
def bootstrap(broker: Echoless, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHOLESS_BOOTSTRAP_SERVER", broker.kafka_address)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "echoless", *map(str, arguments)]


def run(*arguments: object, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Runs `echoless ARGUMENTS` with these bytes on standard input."""
    return subprocess.run(
        command(*arguments),
        input=given,
        capture_output=True,
        timeout=PATIENCE_S,
        cwd=REPOSITORY,
        check=False,
    )


@contextmanager
def running(*arguments: object, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A command that a user may end by Ctrl-C, also if this run ignores it; gone at the end of the block."""
    with subprocess.Popen(
        command(*arguments),
        cwd=REPOSITORY,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads here
        **streams,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def committed(topic: str, isolation: str = "read_committed") -> list[bytes]:
    """The lines that a reader of this isolation sees, once the markers are in."""
    return sorted(run("consume", topic, "--isolation", isolation).stdout.splitlines())


def test_lines_in_one_transaction(echoless: Command) -> None:
    """They are committed at the end of the input, or aborted; a mistake or an interrupt aborts."""
    echoless("topics", "create", "whole", "--partitions", 2)
    produce = ("produce", "whole", "--transaction", "lines-1")
    sent = run(*produce, given=b"a\nb\n")
    assert sent.stderr == b"2 records stored in whole, and committed\n"
    sent = run(*produce, "--abort", given=b"x\ny\n")
    assert sent.stderr == b"2 records stored in whole, and aborted\n"
    failed = run(*produce, "--key-separator", ":", given=b"k:z\nnone\n")
    assert failed.returncode == 1
    assert b"line 2 has no key" in failed.stderr
    with running(*produce, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"typed\n")
        process.stdin.flush()
        deadline = time.monotonic() + PATIENCE_S
        while b"typed" not in committed("whole", "read_uncommitted"):
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert said.startswith(b"1 record stored in whole, but not committed\n")
    run(*produce, given=b"c\n")
    deadline = time.monotonic() + PATIENCE_S
    while committed("whole") != [b"a", b"b", b"c"]:
        assert time.monotonic() < deadline, committed("whole")
    assert len(committed("whole", "read_uncommitted")) == 7


def test_every_line_is_stored_once_and_comes_back(echoless: Command) -> None:
    """Any bytes but line breaks, in order, in more than one read and batch; an unfinished last line, too."""
    echoless("topics", "create", "lines", "--partitions", 1)
    lines = [b"", b"a", b"\xff\x00\r", *(b"%d " % n * (n % 90) for n in range(20_000))]
    given = b"\n".join(lines)
    sent = run("produce", "lines", "--compression", "zstd", given=given)
    assert (sent.returncode, sent.stderr) == (0, b"20003 records stored in lines\n")
    assert run("consume", "lines").stdout == given + b"\n"


def test_lines_without_a_key_use_every_partition() -> None:
    """A read at a time, in turn."""
    run("produce", "spread", given=b"%0100d\n" % 7 * 10_000)
    sizes = [run("consume", "spread", "--partition", n).stdout.count(b"\n") for n in (0, 1)]
    assert sum(sizes) == 10_000
    assert all(sizes)


def test_keys_headers_and_nulls() -> None:
    """A separator ends the key; the marker stands for null; JSON has all of it."""
    arguments = ("--key-separator", "=", "--null-marker", "~", "--header", "from=a test")
    sent = run("produce", "keyed", *arguments, given=b"k=v=w\n~=\nk=~\nb=\xfe")
    assert sent.returncode == 0
    read = run("consume", "keyed", "--json")
    records = sorted(map(json.loads, read.stdout.splitlines()), key=lambda one: one["timestamp"])
    assert [(one["key"], one["value"]) for one in records] == [
        ("k", "v=w"),
        (None, ""),
        ("k", None),
        ("b", {"base64": "/g=="}),
    ]
    assert {tuple(map(tuple, one["headers"])) for one in records} == {(("from", "a test"),)}
    assert b"k->v=w\n" in run("consume", "keyed", "--key-separator", "->").stdout


def test_a_typed_line_goes_at_once(echoless: Command) -> None:
    """It can be read while the producer waits for the next one; `--follow` waits for it."""
    echoless("topics", "create", "typed")
    with (
        running("produce", "typed", stdin=subprocess.PIPE) as typing,
        running("consume", "typed", "--follow", stdout=subprocess.PIPE) as following,
    ):
        assert typing.stdin is not None
        assert following.stdout is not None
        for line in (b"one\n", b"two\n"):
            typing.stdin.write(line)
            typing.stdin.flush()
            assert following.stdout.readline() == line
        following.send_signal(signal.SIGINT)
        assert following.wait(PATIENCE_S) == 0


def test_a_group_continues_where_it_was(echoless: Command) -> None:
    """Printed records are committed, also by a reader that is stopped; another group begins anew."""
    echoless("topics", "create", "shared", "--partitions", 1)
    run("produce", "shared", given=b"1\n2\n3\n")
    assert echoless("consume", "shared", "--group", "g", "--count", 2).out == "1\n2\n"
    reader = ("consume", "shared", "--group", "g", "--follow")
    with running(*reader, stdout=subprocess.PIPE) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == b"3\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(PATIENCE_S) == 0
    assert echoless("consume", "shared", "--group", "g").out == ""
    run("produce", "shared", given=b"4\n")
    assert echoless("consume", "shared", "--group", "g").out == "4\n"
    assert echoless("consume", "shared", "--group", "other").out == "1\n2\n3\n4\n"
    assert echoless("consume", "shared", "--group", "third", "--from", "latest").out == ""


def test_what_nobody_read_is_not_committed(echoless: Command) -> None:
    """A reader of the pipe that goes away: the next member of the group prints what was not printed."""
    echoless("topics", "create", "unread", "--partitions", 1)
    run("produce", "unread", given=b"1\n2\n")
    reading, writing = os.pipe()
    os.close(reading)
    with running("consume", "unread", "--group", "g", stdout=writing) as process:
        os.close(writing)
        assert process.wait(PATIENCE_S) == 1
    assert echoless("consume", "unread", "--group", "g").out == "1\n2\n"


def test_a_line_without_a_key_ends_it() -> None:
    """Named by its number; the lines before are stored."""
    sent = run("produce", "mistakes", "--key-separator", ":", given=b"a:1\nb:2\nc\nd:4\n")
    assert sent.returncode == 1
    assert sent.stderr.splitlines()[0] == b"2 records stored in mistakes"
    assert b"line 3 has no key: ':'" in sent.stderr
    values = run("consume", "mistakes", "--key-separator", ":").stdout.splitlines()
    assert sorted(values) == [b"a:1", b"b:2"]


def test_where_to_begin(echoless: Command) -> None:
    """An end by name, an offset, a time; each of them, and a count, bounds what is printed."""
    echoless("topics", "create", "begun", "--partitions", 1)
    run("produce", "begun", given=b"0\n1\n")
    last = json.loads(run("consume", "begun", "--json").stdout.splitlines()[-1])["timestamp"]
    after = datetime.datetime.fromtimestamp((last + 1) / 1000, datetime.UTC)
    while datetime.datetime.now(datetime.UTC) <= after:
        time.sleep(0.001)
    run("produce", "begun", given=b"2\n3\n")
    for start, expected in (
        ("earliest", b"0\n1\n2\n3\n"),
        ("latest", b""),
        ("3", b"3\n"),
        ("4", b""),
        ("1970-01-01", b"0\n1\n2\n3\n"),
        (after.isoformat(), b"2\n3\n"),
        (after.replace(tzinfo=None).isoformat(), b"2\n3\n"),
        ("2200-01-01T00:00:00", b""),
    ):
        read = echoless("consume", "begun", "--from", start)
        assert (read.out.encode(), read.err) == (expected, ""), start
    assert echoless("consume", "begun", "--count", 2).out == "0\n1\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("produce", "t", "--header", "x"), "--header: takes NAME=VALUE, not 'x'"),
        (("produce", "t", "--key-separator", ""), "--key-separator: takes at least one character"),
        (("produce", "t", "--abort"), "--abort: takes --transaction"),
        (("produce", "t", "--transaction", ""), "--transaction: takes an id"),
        (("produce", "t", "--partition", 5), "--partition: t has partitions 0 to 1, not 5"),
        (("produce", "a/b"), "a/b: INVALID_TOPIC_EXCEPTION"),
    ],
)
def test_a_sender_names_mistakes(
    echoless: Command, arguments: tuple[object, ...], message: str
) -> None:
    """One line on standard error that names the option, and exit code 1."""
    echoless("topics", "create", "t", "--partitions", 2, "--if-not-exists")
    ran = run(*arguments, given=b"x\n")
    assert ran.returncode == 1
    assert message in ran.stderr.decode().splitlines()[-1]
    assert b"Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("never",), "never: UNKNOWN_TOPIC_OR_PARTITION (echoless topics list"),
        (
            ("t", "--from", "soon"),
            "--from: takes earliest, latest, an offset, or a time",
        ),
        (("t", "--from", "9"), "--from: partition 0 has offsets 0 to 0, not 9"),
        (("t", "--partition", 5), "--partition: t has partitions 0 to 1, not 5"),
        (("t", "--group", "g", "--partition", 0), "--partition: not with --group"),
        (
            ("t", "--group", "g", "--from", "3"),
            "--from OFFSET and --from TIME: not with",
        ),
    ],
)
def test_a_reader_names_mistakes(
    echoless: Command, arguments: tuple[object, ...], message: str
) -> None:
    """One line on standard error, too."""
    echoless("topics", "create", "t", "--partitions", 2, "--if-not-exists")
    ran = echoless("consume", *arguments)
    assert (ran.code, ran.out) == (1, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_a_record_cannot_command_a_terminal() -> None:
    """Control characters are shown as escapes there; a pipe gets the bytes."""
    run(
        "produce",
        "hostile",
        "--key-separator",
        ":",
        given="\x1b]0;k\x07:\x1b[2Jtab\there é\n".encode(),
    )
    ours, theirs = pty.openpty()
    with running("consume", "hostile", "--key-separator", ":", stdout=theirs) as process:
        assert process.wait(PATIENCE_S) == 0
    os.close(theirs)
    line = os.read(ours, 1000).decode()
    os.close(ours)
    assert line == "\\x1b]0;k\\x07:\\x1b[2Jtab\there é\r\n"


def test_closed_standard_input_is_an_empty_one() -> None:
    """Its number does not go to a connection, from which lines would be read."""
    shell = ["bash", "-c", 'exec "$@" <&-', "bash", *command("produce", "closed")]
    ran = subprocess.run(
        shell, capture_output=True, timeout=PATIENCE_S, cwd=REPOSITORY, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, b"0 records stored in closed\n")


def test_a_broken_pipe_is_no_error() -> None:
    """`echoless consume | head -1` ends both."""
    run("produce", "piped", "--partition", 0, given=b"x\n" * 100_000)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running("consume", "piped", "--follow", **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"x\n"
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 1
        assert process.stderr.read() == b""


def test_both_log_in(tmp_path: Path, echoless: Command) -> None:
    """By the same `--command-config` as every other command."""
    authority = Authority(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("correct horse")
    secured = Echoless(tmp_path, authority.settings("PLAINTEXT:SASL_SSL"))
    place = ("--password-file", secret, "--data-dir", secured.data_dir)
    assert echoless("users", "add", "alice", *place).code == 0
    secured.start()
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=alice\n"
        f"sasl.password=correct horse\nssl.ca.location={authority.path}\n"
    )
    there = ("--bootstrap-server", secured.kafka_address, "--command-config", config)
    assert run("produce", "safe", *there, given=b"sound\n").returncode == 0
    read = run("consume", "safe", *there)
    secured.kill()
    assert (read.stdout, read.stderr) == (b"sound\n", b"")


def test_both_log_in_by_a_token(tmp_path: Path) -> None:
    """From an endpoint, whose secret is in the file; topics are created and read by the same."""
    authority, issuer = Authority(tmp_path), Issuer(tmp_path / "issuer")
    settings = issuer.settings(sasl_enabled_mechanisms="OAUTHBEARER")
    secured = Echoless(tmp_path, authority.settings("PLAINTEXT:SASL_SSL", **settings))
    secured.start()
    config = tmp_path / "client.properties"
    there = ("--bootstrap-server", secured.kafka_address, "--command-config", config)
    with TokenServer(authority, issuer.token) as server:
        config.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
            f"sasl.oauthbearer.token.endpoint.url={server.url}\nhttps.ca.location={authority.path}\n"
            "sasl.oauthbearer.client.id=app\nsasl.oauthbearer.client.secret=hunter2\n"
            f"ssl.ca.location={authority.path}\n"
        )
        assert run("topics", "create", "safe", *there).returncode == 0
        assert run("produce", "safe", *there, given=b"sound\n").returncode == 0
        read = run("consume", "safe", *there)
        server.answer = (401, {}, b'{"error": "invalid_client"}')
        refused = run("topics", "list", *there)
    secured.kill()
    assert (read.stdout, read.stderr) == (b"sound\n", b"")
    assert refused.returncode == 1
    assert b"refuses client app: 401 invalid_client" in refused.stderr
    assert b"hunter2" not in refused.stderr
