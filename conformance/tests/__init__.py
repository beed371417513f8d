"""The suite's own tests: it is run against a toy node that conforms, and against mutants of it."""
