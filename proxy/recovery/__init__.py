"""Taking over a partition: from the committed offsets, the local folder and the ingress.

May use scheduling, kafka and what lies below. Begin with `recovery`.
"""
