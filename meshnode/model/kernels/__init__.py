"""Compiled kernels for the CPU: formats of weights, products, attention, whole layers.

Nothing here is needed: where the kernels cannot be compiled, ``model.linear`` packs for torch's own
operators, which give the same tokens more slowly.
"""
