"""The files behind the wheel: segments of the TimerLog with its runs, and body files.

May use shard.files, options and errors; knows neither wheel nor checkpoint. Begin with `records`.
"""
