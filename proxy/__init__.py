"""A timer service beside Kafka: records arrive in their topic when due, exactly once."""
