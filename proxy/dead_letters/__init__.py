"""Dead letters: found in their topic, and replayed into the ingress, none twice.

May use publishing, kafka, config, client, requests and records. Begin with `letter`. `replay` holds
the steps of a replay, for the command and for the admin port alike.
"""
