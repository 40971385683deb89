"""`python -m tests.support.broken_broker`: a broker with bugs, for tests of the cost of bugs.

Describing the cluster fails an assertion in the handler. Who joins a group with instance id "halfway" is half a member when
the coordinator fails. The append that follows a record whose
value is "halfway" fails inside the log, after bytes may have been written.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from echoless.broker.handlers import describe_cluster
from echoless.broker.handlers.loaded import LOADED
from echoless.broker.serve import main
from echoless.coordinators.groups.consumer.admission import Admission
from echoless.coordinators.groups.consumer.requests import ConsumerHeartbeat
from echoless.storage.segment import Segment

HALFWAY = b"halfway"


def _fail(*_: object) -> NoReturn:
    raise AssertionError("a bug of the handler")


def _break_handlers() -> None:
    LOADED[describe_cluster.API.key] = describe_cluster.SERVED._replace(handle=_fail)


def _break_appends() -> None:
    append: Any = Segment.append

    def fail_halfway(self: Segment, *arguments: Any) -> Any:
        result = append(self, *arguments)
        if any(HALFWAY in bytes(one) for one in arguments[0]):
            raise KeyError("a bug of the log")
        return result

    broken: Any = Segment
    broken.append = fail_halfway


def _break_groups() -> None:
    admit: Any = Admission.admit

    def fail_halfway(self: Admission, request: ConsumerHeartbeat) -> Any:
        result = admit(self, request)
        if request.instance_id == HALFWAY.decode():
            raise AssertionError("a bug of the coordinator")
        return result

    broken: Any = Admission
    broken.admit = fail_halfway


if __name__ == "__main__":
    _break_handlers()
    _break_groups()
    _break_appends()
    sys.exit(main())
