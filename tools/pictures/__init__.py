"""Pictures of the page for operators, with real records, and how long its calls take.

`python -m tools.pictures`; docs/admin-page.md says what for.
"""
