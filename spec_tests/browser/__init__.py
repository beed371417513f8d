"""The page in a real browser (decision 0165): ``nox -s browser``."""
