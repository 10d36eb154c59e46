"""The call that follows one record through the topics.

May use lineage, and what the admin port's API may use. Begin with `trace_calls`.
"""
