"""What commands share at the terminal: options, tables, JSON, Ctrl-C.

May use config. Begin with `output`.
"""
