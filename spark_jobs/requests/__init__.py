"""The request of each ingress record, read from the guide and not from the proxy's code.
May use `runtime` and `records`. Begin with `parsing`.
"""
