"""Comparison of the kinds of store, without a broker. Begin with `scenarios`, then
`measurement`."""
