"""How each due record ends: delivered, dead-lettered, rolled or requeued.

Pure; may use scheduling and what stands below it. Begin with `dispatcher`.
"""
