"""Log compaction: of the records of each key below a bound, only the newest stays.

`plan.py` and `rewrite.py` decide, and touch no file; `cleaning.py` reads and writes in small steps, `swap.py`
replaces segments so that a crash leaves the old ones or the new one, `compaction.py` is one log's face to both.
"""
