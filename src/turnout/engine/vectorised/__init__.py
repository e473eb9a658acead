"""The default engine: the clients of a block are rows of a stack and move together."""
