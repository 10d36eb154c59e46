"""The running proxy: workers behind one admin port.

May use every package except cli. Begin with `run`; `worker` opens a new session after each lost one."""
