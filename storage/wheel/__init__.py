"""The kind `wheel`: a TimerWheel whose slots point at chains of runs in the TimerLog.

May use the modules that lie directly in storage, not the other kinds. Begin with `tier`, then
storage/FORMAT.md.
"""
