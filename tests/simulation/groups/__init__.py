"""Consumer groups in the simulated world: members, what they see, and whole histories of them."""
