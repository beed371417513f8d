"""Services on trio: each owns one piece of state and is started with ``nursery.start``."""
