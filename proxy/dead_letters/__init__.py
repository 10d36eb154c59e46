"""Lists of dead letters, and replays of them into the ingress. No letter is replayed twice.

May use publishing, kafka, config and protocol. Begin with `letter`."""
