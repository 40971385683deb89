"""The peer at the other end of a connection: TLS, certificates, and log-in."""
