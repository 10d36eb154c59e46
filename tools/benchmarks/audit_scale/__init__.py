"""How long the audit takes, beside a bare Spark read of the same topics in the same run.

Begin with `scale`: write the topics, read them bare, audit them, write more, audit that. What a
hundred records are: `mix`.
"""
