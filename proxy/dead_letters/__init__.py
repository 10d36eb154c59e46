"""Dead letters: found in their topic, and replayed into the ingress, none twice. May use
publishing, kafka, config, client, requests and records. Begin with `letter`."""
