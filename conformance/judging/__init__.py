"""Judges the suite itself: mutants and peculiar variants of a real node, behind a fault layer.

Not part of the installed package: it needs the reference node, which it starts as a user would.
"""
