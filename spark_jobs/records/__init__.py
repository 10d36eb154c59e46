"""Parts that any record has: header names, SQL over headers, fingerprints, topic names.
May use `runtime`. Begin with `headers`.
"""
