"""What other rooms need to talk to a broker."""
