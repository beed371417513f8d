"""The state tree: its root depends on the entries, not on the order of their insertion."""

from hypothesis import given
from hypothesis import strategies as st

from meshnode.domain.chain.statetree import MemoryStore, StateTree, bucket_hash, bucket_of

DEPTH = 4
names = st.sampled_from([f"account/{n}" for n in range(40)])
entries = st.dictionaries(names, st.binary(max_size=4))
changes = st.dictionaries(names, st.none() | st.binary(max_size=4))


def root_of(content: dict[str, bytes]) -> bytes:
    store, tree = MemoryStore(DEPTH), StateTree(DEPTH)
    store.write(content)
    tree.rebuild(store)
    return tree.root


@given(entries, st.lists(changes, max_size=6))
def test_growing_and_building_give_the_same_root(
    start: dict[str, bytes], steps: list[dict[str, bytes | None]]
) -> None:
    store, tree, expected = MemoryStore(DEPTH), StateTree(DEPTH), dict(start)
    store.write(start)
    tree.rebuild(store)
    for step in steps:
        before = tree.root
        fresh = tree.fresh(store, step)
        # Computing the next root does not change the tree.
        assert tree.root == before
        store.write(step)
        tree.adopt(fresh)
        for name, value in step.items():
            if value is None:
                expected.pop(name, None)
            else:
                expected[name] = value
        assert store.entries() == expected
        assert tree.root == root_of(expected)


@given(entries, entries)
def test_different_entries_have_different_roots(
    one: dict[str, bytes], other: dict[str, bytes]
) -> None:
    assert (root_of(one) == root_of(other)) == (one == other)


def test_a_bucket_is_hashed_without_ambiguity() -> None:
    pairs = [{"ab": b"c"}, {"a": b"bc"}, {"a": b"b", "c": b""}, {"a": b"", "b": b"c"}, {}]
    assert len({bucket_hash(pair) for pair in pairs}) == len(pairs)


def test_a_block_changes_only_the_path_of_its_entries() -> None:
    store, tree = MemoryStore(), StateTree()
    fresh = tree.fresh(store, {"account/1": b"x"})
    assert len(fresh) == tree.depth + 1
    assert (1 << tree.depth) + bucket_of("account/1") in fresh


def test_the_layout_is_pinned() -> None:
    # These roots are part of consensus: nodes with other values could not follow the chain.
    assert bucket_of("account/1") == 33410
    assert (
        StateTree().root.hex() == "d83389ac9a207fb7dbdc492fbb56b9482f19170699e224be64694cc885a3a2a2"
    )
    assert (
        root_of({"clock": b"{}"}).hex()
        == "cbea0720741c98a1cde575ea4d136e78677bf9c1b68d0200b733117938a04e90"
    )
