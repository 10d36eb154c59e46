"""`trace`: what became of one record, told at the command line.

May use `cli.terminal` and every room of the proxy. Begin with `command`; the story is made in
`proxy.lineage`.
"""
