"""The kinds of store side by side, without a broker. Begin with `scenarios`, then `measurement`."""
