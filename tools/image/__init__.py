"""Build of the Dockerfile's steps without a container engine: `python -m tools.image` (as root, on
Linux). A root file system made of Debian packages replaces the base image. The result runs as in an
engine: as an unprivileged user, with read-only code."""
