"""One line for what Spark reports in a hundred."""

from __future__ import annotations

import pytest

from echoless.pipeline.streaming.explanation import explain

_TASK = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted. SQLSTATE: XXKST
Traceback (most recent call last):
  File "sink.py", line 1, in write
echoless.pipeline.exactly_once.errors.LedgerError: the ledger cannot be reached: gone

\tat org.apache.spark.Task.run(Task.scala:1)
Caused by: java.lang.RuntimeException: ignored
"""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (_TASK, "the ledger cannot be reached: gone"),
        ("[STREAM_FAILED] Query terminated: no topic\n\tat x\nCaused by: a.B: why", "a.B: why"),
        ("[X] y\nTraceback\n  File z\nImportError: no x\n\nCaused by: a.B: c", "ImportError: no x"),
        (
            "[PATH_NOT_FOUND] Path does not exist: /x. SQLSTATE: 42K03",
            "Path does not exist: /x. SQLSTATE: 42K03",
        ),
        (
            "[X] y: a.TimeoutException: Timed out waiting for a node assignment. Call: listTopics SQLSTATE: XXKST",
            "the source cannot be reached: Timed out waiting for a node assignment. Call: listTopics",
        ),
        ("something else\nand more", "something else"),
    ],
)
def test_the_reason_is_found(text: str, wanted: str) -> None:
    """Our own error before Python's, before Java's cause, before Spark's first words."""
    assert explain(Exception(text)) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs",
        "An error occurred while calling o58.start.\n: Multiple streaming queries are concurrently using metadata.",
        "Query [id = 7] terminated with exception: [STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY] The checkpoint",
        "[CONCURRENT_QUERY] Another instance of this query was just started by a concurrent session.",
    ],
)
def test_a_twin_is_named(text: str) -> None:
    """Spark sees it in the checkpoint: in its log, or in metadata and offsets where both are just starting."""
    assert explain(Exception(text)).startswith("another run works with this checkpoint")
