"""Campaign that judges the audit: random runs with one planted fault each. Begin with
`campaign`. The faults are in `operators`."""
