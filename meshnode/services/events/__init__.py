"""Live events of this node: what happens, for pages and programs that watch it (decision 0166)."""
