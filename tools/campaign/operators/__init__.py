"""The faults, by where they are planted: in deliveries, outcomes, dead letters, hops, the ingress
and the committed positions. `operator` says what one is; `catalogue` lists them all."""
