"""A copier: records of input topics into others, each stored once, with its position kept in a consumer group."""
