"""One module for each attack; its name is the attack's, and ``ATTACK`` describes it."""
