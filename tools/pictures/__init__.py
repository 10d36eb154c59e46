"""Pictures of the operators' page with real records, and timings of its calls. `python -m
tools.pictures`; see docs/admin-page.md."""
