"""Differential testing: the same random histories of produce requests to Apache Kafka and Echoless.

    history.py      what a history is, and the seeded generator
    flaws.py        batches that no correct client sends
    play.py         plays a history to one broker and records its answers
    reference.py    a model of one partition, by Kafka's rules or by Echoless' rules
    differences.py  the allowed differences, by name
    judge.py        the comparison of answers, producers and stored logs
    run.py          groups of histories, restarts between their two halves, the report

Nothing here imports the code under test. Each broker's answer is compared with the model of its
own rules, and where the two models disagree, one of the named differences must explain it; so a
Kafka that deviates from its model is found as well as an Echoless that does.
"""
