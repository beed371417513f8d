"""The suite's own tests: the judge is judged against a toy that conforms, and by breaking it."""
