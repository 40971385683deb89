"""Groups of the consumer protocol (KIP-848): members heartbeat, the coordinator assigns."""
