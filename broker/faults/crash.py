"""The end of the process, as by `kill -9`: nothing is flushed and no one is notified."""

from __future__ import annotations

import logging
import os
import signal

from echoless.broker.faults.rule import ActiveRule

logger = logging.getLogger(__name__)


def crash(rule: ActiveRule) -> None:
    """Ends the process; does not return."""
    logger.critical("the fault rule %s ends this process: %s", rule.name, rule.action.point)
    os.kill(os.getpid(), signal.SIGKILL)
