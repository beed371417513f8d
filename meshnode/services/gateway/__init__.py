"""The native API's resources, and its JSON-RPC methods, over the node's own ledger."""
