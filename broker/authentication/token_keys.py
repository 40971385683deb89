"""The keys by which tokens are checked: read from a file or a server, and read again regularly.

While they cannot be read, the old ones stay in use for `sasl_oauthbearer_jwks_keys_max_age_ms`, and then there are
none. A token with an unknown key has them read at once, but not more often than every `AGAIN_INTERVAL_S`: anyone can
send such tokens.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from time import monotonic
from typing import Final

from echoless.broker.authentication.key_document import KeyDocument, KeyDocumentError
from echoless.broker.authentication.key_set import KeySet, read_key_set
from echoless.broker.config.loading import Config, ConfigError
from echoless.broker.essential_task import essential_task
from echoless.broker.network.turns import in_thread

logger: Final = logging.getLogger(__name__)

AGAIN_INTERVAL_S: Final = 10.0
_REFUSED_SHOWN: Final = 5


class TokenKeys:
    """The current keys. Used from one event loop, from `start` to `close`."""

    def __init__(self, config: Config) -> None:
        """Raises `ConfigError` if the keys are to be in a file that cannot be used."""
        url = config.sasl_oauthbearer_jwks_endpoint_url
        assert url is not None
        self._config = config
        self._document = KeyDocument(url)
        if self._document.is_file:
            try:
                read_key_set(self._document.read_now(), config.sasl_oauthbearer_algorithms)
            except (KeyDocumentError, ValueError) as error:
                raise ConfigError(
                    f"sasl_oauthbearer_jwks_endpoint_url: {url} cannot be used: {error}"
                ) from error
        self._keys: KeySet | None = None
        self._read_at = 0.0
        self._asked_at: float | None = None
        self._reading: asyncio.Task[bool] | None = None
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Reads the keys once; if that fails, no token is valid until they have been read."""
        await self._read()
        self._task = essential_task(self._read_regularly(), "regular reading of token keys")

    async def close(self) -> None:
        """Stops reading."""
        for task in (self._task, self._reading):
            if task is not None:
                task.cancel()

    def current(self) -> KeySet | None:
        """None if there are none, or only some that are too old."""
        age_max_s = self._config.sasl_oauthbearer_jwks_keys_max_age_ms / 1000
        if self._keys is not None and monotonic() - self._read_at > age_max_s:
            logger.error(
                "the token keys of %s are older than sasl_oauthbearer_jwks_keys_max_age_ms and are used no longer: "
                "no token is valid until they can be read",
                self._document.url,
            )
            self._keys = None
        return self._keys

    async def read_again(self) -> bool:
        """Reads the keys now, for a token whose key is unknown; returns whether that was done."""
        reading = self._reading
        if reading is None:
            if self._asked_at is not None and monotonic() - self._asked_at < AGAIN_INTERVAL_S:
                return False
            self._asked_at = monotonic()
            reading = self._reading = asyncio.ensure_future(self._read())
            reading.add_done_callback(self._end_reading)
        return await asyncio.shield(reading)  # others may wait for it, too

    def _end_reading(self, _: asyncio.Future[bool]) -> None:
        self._reading = None

    async def _read_regularly(self) -> None:
        config = self._config
        while True:
            pause_ms = config.sasl_oauthbearer_jwks_endpoint_refresh_ms
            if self._failures:
                backoff_ms = config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms
                most_ms = config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms
                pause_ms = min(backoff_ms << min(self._failures - 1, 20), most_ms, pause_ms)
            await asyncio.sleep(pause_ms / 1000)
            await self._read()
            self.current()

    async def _read(self) -> bool:
        """Returns whether the keys could be read."""
        try:
            data = await self._document.read()
            algorithms = self._config.sasl_oauthbearer_algorithms
            keys = await in_thread(partial(read_key_set, data, algorithms))
        except (KeyDocumentError, ValueError) as error:
            self._failures += 1
            if self._failures == 1 or self._keys is None:
                stay = (
                    "no token is valid" if self._keys is None else "the old ones stay for a while"
                )
                message = "cannot read the token keys of %s: %s; %s"
                logger.error(message, self._document.url, error, stay)  # noqa: TRY400 - it says all
            return False
        self._log_change(keys)
        self._keys, self._read_at, self._failures = keys, monotonic(), 0
        return True

    def _log_change(self, keys: KeySet) -> None:
        old = self._keys
        if old is not None and old.ids == keys.ids and not self._failures:
            return
        level = logging.INFO if keys else logging.WARNING
        logger.log(
            level, "the token keys of %s are %s", self._document.url, keys.ids or "none at all"
        )
        for reason in keys.refused[:_REFUSED_SHOWN]:
            logger.warning("a key of %s is not used: %s", self._document.url, reason)
