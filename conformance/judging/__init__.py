"""The judge judged: mutants and peculiar variants of a real node, behind a fault layer.

Not part of what is installed: it needs the reference node, which it starts as a user would.
"""
