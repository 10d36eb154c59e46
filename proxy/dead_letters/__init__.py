"""Lists of dead letters, and replays into the ingress. Only `--again` replays a letter twice.

May use publishing, kafka, config and protocol. Begin with `letter`."""
