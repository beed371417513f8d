"""Work for the chain: paid answers, sponsored training, exact execution (decision 0087)."""
