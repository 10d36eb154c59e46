"""Results of an audit: tables, figures, report, input of the next audit, and questions.
May use `verdicts` and its rooms. Begin with `result_tables`.
"""
