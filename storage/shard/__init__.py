"""What every kind of store shares: memtables over a disk tier, checkpoint, a folder's opening.

May use its room memory/ and the files directly in storage/; knows no kind. Begin with
`tiered_store`.
"""
