"""Everything hostile at once against one broker, and its cost to a well-behaved client.

A real broker (`watched_broker`), a well-behaved producer and reader (`good_producer`,
`good_reader`) and every attacker (`attackers/`), each in a separate process. First a phase without
attackers, then the siege; `run` ties them together and `verdict` judges. `docs/hostile.md` has the
figures.
"""
