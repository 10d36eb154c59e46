"""What each ingress record asks for, read anew from the guide and not from the proxy's code.

May use `runtime` and `records`. Begin with `parsing`.
"""
