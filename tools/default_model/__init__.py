"""The default model: its corpus, its tokenizer and its training run."""
