"""This node's part of pipelines: sessions of held layers, for peers and for its own generations."""
