"""The HTTP adapter: Hypercorn and Quart-Trio, and the home of each of their workarounds."""
