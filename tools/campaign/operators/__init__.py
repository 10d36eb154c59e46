"""Fault operators. Each plants one kind of fault. There is a module for each place of a fault, such
as deliveries, outcomes, dead letters and hops. `operator` defines operators, and `catalogue` lists
them."""
