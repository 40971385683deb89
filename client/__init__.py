"""What other rooms need to talk to a broker.

Nothing is imported here: commands need the blocking connection only, and the producers cost more.
"""
