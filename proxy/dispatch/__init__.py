"""What becomes of each record that is due: delivered, dead-lettered, rolled or requeued.

Pure; may use scheduling and what stands below it. Begin with `dispatcher`; `outgoing_records` says
what is written then.
"""
