"""A record that is sent is stored once: the producers, the broker, and what tests of producers need."""
