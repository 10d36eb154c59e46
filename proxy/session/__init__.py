"""One stay in the consumer group, from joining to leaving. Begin with `pipeline`. The package may
use every room but worker and cli."""
