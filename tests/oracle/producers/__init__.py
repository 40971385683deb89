"""The oracle's script of producers: the same random histories of produce requests to both brokers.

    history.py      what a history is
    generate.py     the seeded generator
    flaws.py        batches that no correct client sends
    play.py         plays a half to one broker and records its answers
    reference.py    a model of one partition, by Kafka's rules or by Echoless' rules
    differences.py  the allowed differences, by name
    judge.py        the comparison of answers, producers and stored logs
    game.py         one history on both brokers
    script.py       settings, restarts, places

Each broker's answer is compared with the model of its own rules, and where the two models disagree,
one of the named differences must explain it; so a Kafka that deviates from its model is found as
well as an Echoless that does.
"""
