"""Bytes on the wire: generated messages, strict JSON, server-sent events, tensors."""
