"""The node's money: the wallet, what it spends, and what paid answers earn (interface 2.2, 4.1)."""
