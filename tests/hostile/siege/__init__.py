"""Everything hostile at once against one broker, and what it costs a client that behaves.

A real broker (`watched_broker`), a producer and a reader that behave (`good_producer`, `good_reader`)
and every attacker (`attackers/`), each of them a process of its own. First a phase without attackers,
then the siege; `run` ties them together and `verdict` judges. `docs/hostile.md` has the figures.
"""
