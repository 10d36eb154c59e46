"""The settings: their model, their sources, and the policy derived from them.

May use the protocol and errors. Begin with `settings`; `default.yaml` documents every key.
"""
