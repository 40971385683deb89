"""Models of how transactions are ended, in Promela, checked by spin: every state, within the bounds of each check.

    endtxn.pml      a client, its connections, and a coordinator that moves: a delayed EndTxn against the next transaction
    markers.pml     the coordinator's log, late markers, and the leader of a partition that asks before it lets a batch in
    checks.py       what is checked: each rule holds, and without it there is a counterexample
    spin.py         how one check is run

`python -m tests.models` runs all of them, which takes minutes; the suite the quick ones.
"""
