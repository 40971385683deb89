"""Topics with a setting that this broker cannot read: a newer version has stored it, or someone by hand.

Their partitions are followed, so that no record loses a replica, but not led: a rule that is not known could be broken.
Nothing of them is deleted or compacted here (`topic_in_force` in `broker/config/topic.py`). The registration names them, so that
the controller has others lead (`broker/controller/elections.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

logger: Final = logging.getLogger(__name__)


class UnservedTopics:
    """The unserved topics of one broker, among those it holds replicas of. Belongs to the event loop."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}
        """By topic: the setting, and why it cannot be read."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when another topic has come or gone; it must not block or raise."""

    def note(self, topic: str, reason: str | None) -> None:
        """Takes note of what cannot be read of the settings of a topic; None: nothing."""
        before = self.reasons.get(topic)
        if before == reason:
            return
        if reason is None:
            del self.reasons[topic]
            logger.info("topic %s: all of its settings can be read again", topic)
        else:
            self.reasons[topic] = reason
            logger.error(
                "topic %s has a setting that this broker cannot read, written by a newer version or by hand: %s. It is not "
                "led or served here, its replicas here are kept up to date, and nothing of them is deleted, until the "
                "setting is removed (echoless topics alter) or this broker is of a version that knows it",
                topic,
                reason,
            )
        self.on_change()
