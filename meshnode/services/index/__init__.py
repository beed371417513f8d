"""The explorer index's parts: what a block means for histories, and the file that keeps it."""
