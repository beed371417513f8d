"""Tables of mutants: each row is a hook that violates one sentence of the document."""
