"""Duration of the audit beside a bare Spark read of the same topics in the same run. Begin with
`scale`. Records are written in hundreds, which `mix` defines."""
