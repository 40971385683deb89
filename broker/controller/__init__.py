"""The controller: one broker of the cluster that decides who leads each partition."""
