"""What an audit knows besides the records: what lies unseen, and which rules and limits hold.

May use `kafka` and what it uses. Begin with `circumstances`.
"""
