"""Calls that change taking in and giving out at run time: pauses, limits, the ingress.

May use the admin port's requests, not its other calls. Begin with `pause_calls`.
"""
