"""What any record of a topic carries: header names, headers as columns, fingerprints, topic names.

May use `runtime`. Begin with `headers`.
"""
