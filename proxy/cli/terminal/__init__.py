"""What commands share at the terminal: options, tables, JSON, Ctrl-C.

May use config, and what reads an origin. Begin with `output`.
"""
