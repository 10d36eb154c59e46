"""Dead letters as a workplace: found, judged, mended, and sent in again, no one twice.

Pure: `letter`, `selection`, `edits`, `prospects`, `marks`, `outlines`, `pace`, `remedies`. Around
them `topic_reader`, `originals`, `marks_topic` and `replayer` speak to the broker.
"""
