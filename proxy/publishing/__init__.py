"""One Kafka transaction: every record that is due is delivered, dead-lettered or put off.

May use scheduling, requests and records. Begin with `publisher`; `dispatch` decides on records.
"""
