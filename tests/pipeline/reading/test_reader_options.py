"""Options are those of Spark's Kafka source; what is not known, or contradicts another, is refused by name."""

from __future__ import annotations

import pytest

from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.reading.bounds import (
    EARLIEST,
    LATEST,
    Bound,
    check_times,
    parse_time_bound,
    parse_times_bound,
    resolve,
)
from echoless.pipeline.reading.columns import COLUMNS, check_schema
from echoless.pipeline.reading.errors import ReadOptionError
from echoless.pipeline.reading.options import (
    READ_COMMITTED,
    read_reader_options,
    schema_options,
)

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def parsed(*, is_stream: bool = False, **given: str):
    options = {name.replace("__", "."): text for name, text in given.items()}
    options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", **options}
    return read_reader_options(
        {name: text for name, text in options.items() if text}, is_stream=is_stream
    )


def test_little_is_needed():
    """Servers and topics; a job reads everything, a stream what comes from now on."""
    job, stream = parsed(), parsed(is_stream=True)
    assert (job.start.value, job.end.value, stream.start.value) == (EARLIEST, LATEST, LATEST)
    assert job.columns == COLUMNS
    assert job.fails_on_data_loss
    assert job.isolation == 0


def test_names_of_options_are_read_in_any_case():
    """Spark lowers some of them itself."""
    options = parsed(
        INCLUDEHEADERS="true", kafka__Isolation__Level="read_committed", maxtriggerdelay="2m"
    )
    assert options.columns[-1] == "headers"
    assert (options.isolation, options.trigger_delay_s) == (READ_COMMITTED, 120.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffset": "earliest"}, "startingOffset: .* did you mean startingOffsets"),
        ({"kafka__bootstrap__servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"subscribe": ""}, "subscribe, subscribePattern, assign"),
        ({"assign": '{"t": [0]}'}, "subscribe and assign"),
        ({"assign": '{"t": "10"}', "subscribe": ""}, "JSON like"),
        ({"assign": '{"t": {"0": 5}}', "subscribe": ""}, "JSON like"),
        ({"assign": '{"t": [0, 1.5]}', "subscribe": ""}, "JSON like"),
        ({"assign": '{"t": [true]}', "subscribe": ""}, "JSON like"),
        ({"topic": "t"}, "topic: the sink writes to it"),
        ({"startingOffsets": "latest"}, "a job cannot start at latest"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "a job cannot start at latest"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "-3 is not an offset"),
        ({"startingOffsets": '{"t": "latest"}'}, "a job cannot start at latest"),
        ({"endingOffsets": '{"t": "earliest"}'}, "a job cannot end at earliest"),
        ({"startingOffsets": '{"t": "soon"}'}, "'soon' of topic t is neither earliest nor latest"),
        ({"startingOffsets": '{"t": 5}'}, "JSON like"),
        ({"startingOffsets": "[]"}, "JSON like"),
        ({"startingOffsetsByTimestamp": '{"t": "earliest"}'}, "JSON like"),
        ({"startingOffsets": "first"}, "startingOffsets: 'first' is not possible: JSON"),
        ({"endingOffsets": "earliest"}, "a job cannot end at earliest"),
        ({"startingOffsets": "earliest", "startingTimestamp": "5"}, "give one of them"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": "x"}}'}, "'x' is not a time"),
        ({"startingOffsetsByTimestampStrategy": "last"}, "error or latest"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"minPartitions": "0"}, "above 0"),
        ({"kafka__fetch__max__wait__ms": "2147483648"}, "at most 2147483647"),
        ({"kafka__max__partition__fetch__bytes": "2147483648"}, "at most 2147483647"),
        ({"startingTimestamp": "9223372036854775808"}, "is not a time"),
        ({"kafka__auto__offset__reset": "earliest"}, "use startingOffsets"),
        ({"kafka__value__deserializer": "x"}, "CAST"),
        ({"kafka__isolation__level": "strict"}, "read_committed"),
        ({"kafka__sasl__kerberos__service__name": "x"}, "sasl.kerberos.service.name"),
        ({"subscribePattern": r"\p{Alpha}+", "subscribe": ""}, "bad escape"),
        ({"columns": "key, headers"}, "needs includeHeaders"),
        ({"columns": "keys"}, "no keys, only key, value"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_by_name(given, message):
    """The message says what to write instead."""
    with pytest.raises(ReadOptionError, match=message):
        parsed(**given)


@pytest.mark.parametrize("option", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(option):
    """Spark ignores one of the three."""
    with pytest.raises(ReadOptionError, match=option):
        parsed(
            is_stream=True, **{option: "5" if option == "endingTimestamp" else '{"t": {"0": 5}}'}
        )


def test_what_has_no_effect_is_accepted_and_secrets_are_not_shown():
    """Configurations are shared with other consumers."""
    options = parsed(
        groupIdPrefix="x",
        kafka__fetch__min__bytes="5",
        kafka__security__protocol="SASL_PLAINTEXT",
        kafka__sasl__mechanism="PLAIN",
        kafka__sasl__username="alice",
        kafka__sasl__password="hidden",
    )
    assert options.security.login is not None
    assert "hidden" not in repr(options)


def test_the_schema_depends_on_two_options_alone():
    """Spark asks for it before anything else."""
    assert schema_options({"includeHeaders": "true", "anything": "x"}) == (*COLUMNS, "headers")
    assert schema_options({"columns": "value,key"}) == ("value", "key")


def test_another_schema_is_refused():
    """Spark lets a user put any in the place of the reader's."""
    check_schema("struct<value:binary,offset:bigint>", ("value", "offset"))
    with pytest.raises(ReadOptionError, match="leave schema"):
        check_schema("struct<value:string>", ("value",))


def test_offsets_have_to_name_just_the_partitions_that_are_read():
    """A partition that is forgotten would be read from somewhere."""
    both = {ZERO: 5, ONE: EARLIEST}

    def ask(wanted):
        return {one: {EARLIEST: 3, LATEST: 9}[number] for one, number in wanted.items()}

    assert resolve(Bound("startingOffsets", both), [ZERO, ONE], ask) == {ZERO: 5, ONE: 3}
    with pytest.raises(ReadOptionError, match="does not name t-1"):
        resolve(Bound("startingOffsets", {ZERO: 5}), [ZERO, ONE], ask)
    with pytest.raises(ReadOptionError, match="names t-1, which is not read"):
        resolve(Bound("startingOffsets", both), [ZERO], ask)


def test_a_topic_may_have_a_word_for_all_its_partitions():
    """As in Spark from SPARK-58774 on, beside topics whose partitions are named."""
    text = '{"t": "Earliest", "u": {"0": 7}}'
    bound = parsed(startingOffsets=text).start
    other = TopicPartition("u", 0)

    def ask(wanted):
        return {one: {EARLIEST: 3}[number] for one, number in wanted.items()}

    assert resolve(bound, [ZERO, ONE, other], ask) == {ZERO: 3, ONE: 3, other: 7}
    with pytest.raises(ReadOptionError, match="names t, which is not read"):
        resolve(bound, [other], ask)
    with pytest.raises(ReadOptionError, match="does not name v-0"):
        resolve(bound, [ZERO, other, TopicPartition("v", 0)], ask)


def test_a_time_after_the_last_record():
    """An error for a start, unless latest is chosen; the end of the log for an end."""
    bound = Bound("startingTimestamp", 50, is_time=True)

    def ask(wanted):
        return {one: 9 if number == LATEST else None for one, number in wanted.items()}

    with pytest.raises(ReadOptionError, match="startingOffsetsByTimestampStrategy=latest"):
        resolve(bound, [ZERO], ask)
    assert resolve(bound, [ZERO], ask, takes_latest=True) == {ZERO: 9}
    assert resolve(bound, [ZERO], ask, is_end=True) == {ZERO: 9}


@pytest.mark.parametrize(
    ("starts", "ends", "said"),
    [
        ('{"orders": {"0": 5, "1": 9}}', '{"orders": {"0": 5, "1": 8}}', "orders-1"),
        ('{"orders": {"0": 5}}', '{"orders": {"0": 5}}', None),
        ("9", "8", "the reading"),
        ("8", "8", None),
        ("9", '{"orders": {"0": 8}}', None),
    ],
)
def test_an_end_in_time_is_not_before_its_start(starts, ends, said):
    """Refused as by Spark's source, whatever offsets there are at these times."""
    start, end = (
        (parse_time_bound if text.isdigit() else parse_times_bound)(option, text)
        for option, text in (("startingTimestamp", starts), ("endingTimestamp", ends))
    )
    if said is None:
        check_times(start, end)
    else:
        with pytest.raises(ReadOptionError, match=said):
            check_times(start, end)
