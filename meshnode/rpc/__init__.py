"""The gRPC adapter: the only importer of purerpc, and the home of each of its workarounds."""
