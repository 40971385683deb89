"""Bad input and bad disks against the running broker."""
