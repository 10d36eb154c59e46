"""Calls that change what is taken in, what waits and what goes: pauses, limits, purges, moves.

May use the admin port's requests, not its other calls. Begin with `pause_calls`.
"""
