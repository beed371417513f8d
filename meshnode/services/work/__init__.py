"""Work for the chain: paid answers, sponsored training, exact execution (decisions/0087)."""
