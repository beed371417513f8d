"""meshnode: the reference node of a distributed model network."""

__version__ = "0.1.0"
