"""Entries in memory: memtables, their index by due and their columns, and counts of what pends.

May use the files directly in storage/; knows no disk. Begin with `memtable`.
"""
