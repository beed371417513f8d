"""The model: decoder, loading, KV cache, sampling. torch is allowed; trio and network are not."""
