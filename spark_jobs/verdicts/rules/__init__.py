"""The rules themselves, as SQL over a record's history: which verdict, when, and why.

May use what `verdicts` may use. Begin with `rule`, then `general_rules`.
"""
