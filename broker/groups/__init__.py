"""Consumer groups: the shell around the pure coordinators of `coordinators/groups/`."""
