"""A wheel's folder looked at from outside: what is wrong with it, and what pends.

May use the wheel's other modules but `opening` and `wheel_tier`. Begin with `wheel_reader`.
"""
