"""The files behind the wheel: segments of the TimerLog with its runs, and body files.

May use shard and what lies below it; knows neither wheel nor checkpoint. Begin with `records`.
"""
