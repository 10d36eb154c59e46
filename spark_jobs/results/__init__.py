"""Results of an audit: tables, figures, report, input of the next audit, and questions.
May use `verdicts` and the rooms that `verdicts` uses. Begin with `result_tables`.
"""
