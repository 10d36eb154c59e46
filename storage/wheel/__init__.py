"""The kind `wheel`: a TimerWheel whose slots point at chains of runs in the TimerLog.

May use what lies at the top of storage, not the other kinds. Begin with `tier`, then
storage/FORMAT.md.
"""
