"""Campaign that judges the audit: does it find planted faults, and only these? In a run, the proxy
handles random requests on a stand-in for Kafka. Each run is audited without a fault and with one
planted fault. Read `campaign` first. The modules of `operators` plant the faults."""
