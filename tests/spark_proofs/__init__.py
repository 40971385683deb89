"""A Spark sink under every kind of fault: each source record must be stored once, in order."""
