"""The chart's pods on a real Kubernetes of one node: `python -m tools.pods` (as root, on Linux).

The node has its own root, made of Debian packages, and its own name spaces, network and control
groups. All processes end with the command, and nothing stays on the machine but caches."""
