"""A weights manifest comes from other nodes: it is either read or refused cleanly."""

import json

import pytest

from meshnode.model.documents import ModelUnreadable
from meshnode.model.manifest import FORMAT, read_manifest


def manifest(shape: str) -> bytes:
    tensor = f'{{"name": "a", "shape": {shape}, "sha256": "{"0" * 64}"}}'
    head = f'"format": {json.dumps(FORMAT)}, "model_hash": "{"0" * 64}"'
    return f'{{{head}, "tensors": [{tensor}]}}'.encode()


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        manifest("[Infinity]"),
        manifest("[NaN]"),
        manifest("[1e400]"),
        manifest("[" + "9" * 5000 + "]"),
        manifest("[[]]"),
        manifest("null"),
        b"null",
        b"[]",
        b'"tensors"',
    ],
)
def test_no_bytes_of_a_stranger_are_more_than_refused(data: bytes) -> None:
    with pytest.raises(ModelUnreadable, match="damaged"):
        read_manifest(data)
