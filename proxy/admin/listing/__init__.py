"""Lists of what waits, page by page, merged from the pieces that workers' loops give.

May use the admin port's requests and queries, not its other calls. Begin with `listing_calls`.
"""
