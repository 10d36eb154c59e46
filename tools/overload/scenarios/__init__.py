"""One load a file: `run(stage)` does it, and gives what was seen."""
