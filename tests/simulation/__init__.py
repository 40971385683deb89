"""A whole cluster in one process, on a virtual clock: the real broker, a world made of seeds.

`history.py` plays one seed: a cluster (`cluster.py`) of machines with disks (`machine.py`), a network
(`network.py`, `connection.py`), a coordinator (`coordination.py`), clients (`clients.py`) and what
goes wrong (`nemesis.py`). `checkers/` judge what was seen. `python -m tests.simulation` plays many.
"""
