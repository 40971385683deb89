"""Authorization: the ACLs in the tree, followed as they change, and the rights of each client."""
