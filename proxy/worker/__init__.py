"""The running proxy: workers behind one admin port. Begin with `run`. The package may use every
room but cli. `worker` opens a new session after each lost one."""
