"""`python -m tools.release`: makes all files of a release, and checks them and the workflows."""
