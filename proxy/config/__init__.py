"""The settings: their model, where they are read from, and the policy that follows from them.

May use requests and records. Begin with `settings`; `default.yaml` documents every key.
"""
