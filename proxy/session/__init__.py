"""One stay in the consumer group, from joining to leaving.

May use every package except worker and cli. Begin with `pipeline`."""
