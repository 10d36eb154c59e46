"""Finds dead letters in their topic, and replays them into the ingress, no letter twice.

May use publishing, kafka, config and protocol. Begin with `letter`."""
