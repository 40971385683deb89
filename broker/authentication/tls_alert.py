"""A context whose refused handshakes end with the alert that says why.

OpenSSL has the alert ready when a handshake fails, and event loops close the connection without sending it: the
client would learn of a certificate that is missing or has expired by a connection that ends.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING, Any, cast

from echoless.broker.network.tls_acceptor import ACCEPTED

if TYPE_CHECKING:
    import socket


class AlertingContext(ssl.SSLContext):
    """Sends the alert by the socket that `ACCEPTED` names when the handshake begins."""

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **more: Any
    ) -> ssl.SSLObject:
        session = cast("_Session", super().wrap_bio(incoming, outgoing, *args, **more))
        session.outgoing, session.socket = outgoing, ACCEPTED.get(None)
        return session


class _Session(ssl.SSLObject):
    outgoing: ssl.MemoryBIO
    socket: socket.socket | None

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            # Everything before it was sent when the client's last bytes were awaited.
            if self.socket is not None:
                with contextlib.suppress(OSError):
                    self.socket.send(self.outgoing.read())
            raise


AlertingContext.sslobject_class = _Session
