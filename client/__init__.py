"""The clients: producers, and a blocking connection for commands.

Nothing is imported here: commands need the blocking connection only, and the producers cost more.
"""
