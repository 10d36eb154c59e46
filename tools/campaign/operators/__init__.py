"""Fault operators by place: deliveries, outcomes, dead letters, hops, the ingress and committed
positions. `operator` defines them and `catalogue` lists them."""
