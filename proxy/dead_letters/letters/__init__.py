"""Dead letters as values: read, selected, edited, planned for a replay, and counted. Pure.

May use requests and records. Begin with `letter`; `replay_planner` says what would become of one.
"""
