"""The compiled code that the suite uses, or None where this Python has none: only grpcio.

The suite as one file carries no compiled code (decision 0197).
"""

try:
    import grpc
except ImportError:
    grpc = None

__all__ = ["AVAILABLE", "NO_GRPC", "grpc"]
AVAILABLE = grpc is not None
NO_GRPC = "this Python has no grpcio: pip install grpcio"
