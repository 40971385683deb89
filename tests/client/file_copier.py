"""A copier as a user writes it: numbered lines of a "file" into a topic, resumed after a crash.

    python -m tests.client.file_copier ADDRESS CHECKPOINT LINES

Line n goes to partition n % PARTITIONS. The checkpoint holds the position after the last
acknowledged line, and the producer's state at that moment; it is replaced as a whole. Each stage
prints a line, so that the process which started the copier can kill it there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from echoless.client.producer import Producer
from echoless.client.settings import Settings
from echoless.client.state import ProducerState
from echoless.protocol.record_batch import Codec

TOPIC = "copied"
PARTITIONS = 3
CHUNK_LINES = 100
SETTINGS = Settings(
    batch_records_max=7,
    compression=Codec.LZ4,
    request_timeout_s=10,
    retry_backoff_s=0.002,
    retry_backoff_max_s=0.05,
)


def main(address: str, checkpoint: Path, lines: int) -> None:
    """Copies from where the checkpoint says to the end."""
    position, state = load(checkpoint)
    producer = Producer(address, SETTINGS, state=state)
    with producer:
        save(checkpoint, position, producer.state())
        while position < lines:
            end = min(position + CHUNK_LINES, lines)
            for number in range(position, end):
                value = str(number).encode()
                partition = number % PARTITIONS
                producer.send(TOPIC, value, partition=partition, timestamp_ms=number)
            print("sent", flush=True)
            producer.flush()
            print("acknowledged", flush=True)
            position = end
            save(checkpoint, position, producer.state())
            print("saved", flush=True)
    print("done", flush=True)


def load(checkpoint: Path) -> tuple[int, ProducerState | None]:
    """The position and state of the last run; the beginning where there was none."""
    if not checkpoint.exists():
        return 0, None
    saved = json.loads(checkpoint.read_text())
    return saved["position"], ProducerState.from_json(saved["producer"])


def save(checkpoint: Path, position: int, state: ProducerState) -> None:
    """Both or neither: by a rename."""
    new = checkpoint.with_suffix(".new")
    new.write_text(json.dumps({"position": position, "producer": state.to_json()}))
    new.replace(checkpoint)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
