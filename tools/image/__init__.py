"""The Dockerfile's own steps without an engine: `python -m tools.image` (as root, on Linux).

A clean root made of Debian packages takes the place of the base image; what is built there is run
as an engine runs it: another user, no rights, code that cannot be written.
"""
