"""The gRPC adapter: the only package that imports purerpc, with all workarounds for it."""
