"""The exhaustive exploration of the coordinator's core: every order of requests, commits, failures, markers and moves."""
