"""Signs every transaction of this node's accounts and sees it into a block (decision 0084)."""
