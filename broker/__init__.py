"""The asyncio server: connections, handlers, partitions, coordination."""
