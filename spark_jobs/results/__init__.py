"""What an audit leaves in its folder: tables, figures, the report, what the next audit needs.

May use `verdicts` and what it uses. Begin with `result_tables`.
"""
