"""A black-box judge for nodes of a distributed model network.

It knows the interface document and nothing of any implementation. `requirements/` holds one entry
for each testable statement, `checks/` says how a statement is tried, `run` does it, `report/`
turns the verdicts into outcomes.
"""

__version__ = "0.1.0"
