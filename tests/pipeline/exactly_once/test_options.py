"""Options are those of Spark's Kafka sink where it has them, and nothing is ignored."""

from __future__ import annotations

import pytest

from echoless.pipeline.exactly_once.errors import OptionError
from echoless.pipeline.exactly_once.options import SINK_BATCH_BYTES_MAX, read_options
from echoless.pipeline.exactly_once.sink import ExactlyOnceSink
from echoless.protocol.record_batch import Codec

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def read(**given: str) -> object:
    options = {name.replace("__", "."): text for name, text in given.items()}
    return read_options({**SERVERS, **options}, name="orders", ledger="/ledger")


def test_little_is_needed():
    """Servers, a name and a ledger."""
    options = read()
    assert (options.bootstrap_servers, options.name, options.ledger, options.topic) == (
        *("localhost:9092", "orders", "/ledger"),
        None,
    )
    assert options.settings.batch_bytes_max == SINK_BATCH_BYTES_MAX


def test_kafkas_producer_settings_reach_the_producer():
    """They have Kafka's names and Kafka's units."""
    settings = read(
        kafka__compression__type="zstd",
        kafka__delivery__timeout__ms="5000",
        kafka__batch__size="1000",
        kafka__linger__ms="50",
        kafka__acks="all",
    ).settings
    assert (settings.compression, settings.delivery_timeout_s) == (Codec.ZSTD, 5.0)
    assert settings.batch_bytes_max == 1000


def test_options_have_no_upper_or_lower_case():
    """Spark hands them on in lower case, or as they were written."""
    options = read(SINKNAME="other", sortwithinpartitions="key, value", ledgerSingleWriter="TRUE")
    assert (options.name, options.sort_columns) == ("other", ("key", "value"))
    assert options.ledger_has_single_writer


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"partitioner": "x"}, "option partitioner: the sink does not have it"),
        ({"kafka__acks": "1"}, "option kafka.acks: '1' is not possible"),
        ({"kafka__compression__type": "rar"}, "option kafka.compression.type: 'rar'"),
        ({"kafka__batch__size": "0"}, "batch_bytes_max is above 0"),
        ({"kafka__bootstrap__servers": "nowhere"}, "option kafka.bootstrap.servers"),
        ({"sinkName": "a/b"}, "option sinkName: 'a/b' is not a name"),
        ({"sinkName": ""}, "option sinkName is missing"),
        ({"batchId": "x"}, "option batchId"),
        ({"ledgerSingleWriter": "maybe"}, "true or false is needed"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(given, reason):
    """A user who sets an option expects an effect."""
    with pytest.raises(OptionError, match=reason):
        read(**given)


def test_options_that_change_nothing_are_accepted_and_named_once(caplog):
    """Configurations are shared with Spark's own sink."""
    given = {**SERVERS, "includeHeaders": "true", "kafka.client.id": "c", "kafka.retries": "3"}
    for _ in range(2):
        ExactlyOnceSink(given, name="orders", ledger="/ledger")
    (said,) = [one.getMessage() for one in caplog.records]
    assert said.endswith(": includeHeaders, kafka.client.id, kafka.retries")
