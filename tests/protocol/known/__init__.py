"""Each quick way beside the general way that it equals."""
