"""The running proxy: workers behind one admin port.

May use every package except cli. Begin with `run`. After it read `worker`, which opens sessions."""
