"""A conforming toy node. Hooks make it violate one sentence; the fault layer serves through it."""
