"""The pages in ``docs/`` and the README: their shell lines are run as they stand there."""
