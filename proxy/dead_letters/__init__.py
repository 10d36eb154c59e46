"""Dead letters: found in their topic, and replayed into the ingress, none twice.

May use publishing, kafka, config and protocol. Begin with `letter`."""
