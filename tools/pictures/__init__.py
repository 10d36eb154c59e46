"""Pictures of the admin page with real records, and timings of the page's calls. `python -m
tools.pictures`; see docs/admin-page.md."""
