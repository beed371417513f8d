"""This node's part in the pipelines of peers: their sessions and training in the held layers."""
