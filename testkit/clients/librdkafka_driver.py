"""confluent-kafka (librdkafka) driven by the line protocol: README.md in this directory."""

from __future__ import annotations

import sys
import threading
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, Producer

from echoless.testkit.clients.line_protocol import (
    Records,
    read_options,
    read_records,
    say,
    say_done,
)

_POLL_S = 0.05


class LibrdkafkaDriver:
    """The producer, and a thread that polls it for delivery reports."""

    def __init__(self) -> None:
        self._producer: Any = None
        self._opening = 0
        """Counts the producers: late reports of an earlier one are ignored."""
        threading.Thread(target=self._poll, daemon=True).start()

    def open(self, words: list[str]) -> None:
        options = read_options(words)
        security = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": options.username,
            "sasl.password": options.password,
        }
        self._producer = Producer(
            {
                "bootstrap.servers": options.bootstrap,
                "enable.idempotence": True,
                "linger.ms": options.linger_ms,
                "request.timeout.ms": options.request_timeout_ms,
                "socket.timeout.ms": options.request_timeout_ms,
                "delivery.timeout.ms": options.delivery_timeout_ms,
                "retry.backoff.ms": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "log_level": 0,
                "error_cb": self._take_error,
                **(security if options.username else {}),
            }
        )
        self._opening += 1
        say("opened")

    def send(self, words: list[str]) -> None:
        records = read_records(words)
        for number in records.numbers:
            try:
                self._produce(records, number)
            except KafkaException as refused:
                say_done(records, number, error=refused.args[0].name())

    def close(self) -> None:
        self._opening += 1
        self._producer.purge()
        self._producer.flush(_POLL_S)
        self._producer = None
        say("closed")

    def _produce(self, records: Records, number: int) -> None:
        opening = self._opening

        def take(error: Any, message: Any) -> None:
            if opening == self._opening:
                name = None if error is None else error.name()
                say_done(records, number, offset=message.offset(), error=name)

        value = b"%d" % number
        self._producer.produce(
            records.topic, value=value, partition=records.partition, on_delivery=take
        )

    def _take_error(self, error: Any) -> None:
        if error.fatal():
            say("fatal", error=error.str())

    def _poll(self) -> None:
        idle = threading.Event()
        while True:
            producer = self._producer
            if producer is None:
                idle.wait(_POLL_S)
            else:
                producer.poll(_POLL_S)


def main() -> None:
    """Runs until the end of the input."""
    say("ready", client="librdkafka", version=confluent_kafka.libversion()[0])
    driver = LibrdkafkaDriver()
    for line in sys.stdin:
        command, *words = line.split()
        if command == "open":
            driver.open(words)
        elif command == "send":
            driver.send(words)
        elif command == "close":
            driver.close()


if __name__ == "__main__":
    main()
