"""A small node as a client: it conforms, and its variants each misbehave in one way.

`manners` says what can be wrong with one, `node` does it, `world` moves the time in which it
happens, `faults` derives the variants, and `http2` holds a connection whose pings can be judged.
"""
