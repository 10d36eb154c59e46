"""Duration of the audit beside a bare Spark read of the same topics in the same run. Read `scale`
first. Records are written in groups of a hundred, which `mix` defines."""
