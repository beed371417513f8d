"""The command line for users of a chain, against any gateway of native API 0.4.0.

Synchronous; needs neither a node nor a model. A gateway is somebody else's machine: what it answers
is bounded, checked, and never more than a claim. See decisions 0092 to 0094.
"""
