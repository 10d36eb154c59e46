"""The kind `wheel`: a TimerWheel whose slots point at chains of runs in the TimerLog.

May use shard and what lies below it, not the other kinds. Begin with `wheel_tier`, then
storage/FORMAT.md.
"""
