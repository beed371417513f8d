"""The model: decoder, loading, KV cache, sampling. torch is allowed, trio and the network are not."""
