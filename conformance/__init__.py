"""A black-box judge for nodes of a distributed model network.

It knows the interface document but no implementation. `requirements/` holds one entry for each
testable statement, `checks/` test the statements, `run` runs the checks, and `report/` writes the
results in several formats.
"""

__version__ = "0.1.0"
