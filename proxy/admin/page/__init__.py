"""The page that an operator sees at `/` of the admin port, and what keeps it live.

Begin with `snapshots`. May use what the admin port's API may use; the files in `files/` are served
as they are, without a build step, and ask the API like any other client.
"""
