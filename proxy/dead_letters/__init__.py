"""Dead letters: found in their topic, and replayed into the ingress, no letter twice.

May use publishing, kafka, config and protocol. Begin with `letter`."""
