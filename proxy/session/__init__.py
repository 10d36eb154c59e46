"""One stay in the consumer group, from joining to leaving.

May use every room but worker and cli. Begin with `pipeline`."""
