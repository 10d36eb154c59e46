"""What an audit leaves in its folder: tables, figures, the report, what the next audit needs; and
questions about many audits (`question`).

May use `verdicts` and what it uses. Begin with `result_tables`.
"""
