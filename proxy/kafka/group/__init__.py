"""What the consumer group as a whole has given to whom, and what makes it assign anew.

Uses nothing of other rooms. Begin with `unassigned_partitions`; `owners` asks the brokers.
`static_member` keeps two processes of one name from fencing each other.
"""
