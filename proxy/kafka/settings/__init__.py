"""The settings topic: what it holds by key, how it is read and followed, what is written there.

May use what `kafka` may use. Begin with `settings_topic`.
"""
