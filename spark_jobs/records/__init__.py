"""What any record of a topic carries: header names, SQL over headers, fingerprints, topic names.

May use `runtime`. Begin with `headers`.
"""
