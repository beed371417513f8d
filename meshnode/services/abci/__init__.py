"""The ledger as an ABCI 2.0 application of CometBFT (decisions 0175 and 0176).

``frames`` cuts the engine's connections into messages, ``messages`` turns them into values of the
state machine and back, ``calls`` carries them out, ``server`` accepts the engine's connections.
"""
