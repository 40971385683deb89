"""The network: sockets, connections, and the memory their requests may take."""
