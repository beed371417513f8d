"""The command line for users of a chain, against any gateway of native API 0.4.0.

The client is synchronous and needs neither a node nor a model. A gateway is somebody else's
machine: its answers are bounded and checked, and are never more than claims. See decisions 0092
to 0094.
"""
