"""Comparison of the kinds of store, without a broker. Read `scenarios` first, then
`measurement`."""
