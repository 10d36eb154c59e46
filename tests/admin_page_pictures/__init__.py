"""Pictures of the page for operators, with real records, and how long its calls take.

`python -m tests.admin_page_pictures`; docs/admin-page.md says what for.
"""
