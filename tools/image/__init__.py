"""Build of the Dockerfile's steps without an engine: `python -m tools.image` (as root, on Linux). A
clean root made of Debian packages replaces the base image. The result runs as in an engine: as
another user, without rights, with read-only code."""
