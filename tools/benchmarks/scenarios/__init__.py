"""The scenarios of issue 3: what a delaying proxy is used for, one module each."""
