"""``meshnode watch``: the live events of a node in a terminal (decision 0167)."""
