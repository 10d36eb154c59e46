"""What the consumer group as a whole has given to whom, and what makes it assign anew.

Uses nothing of other rooms. Begin with `unassigned_partitions`; `owners` asks the brokers.
"""
