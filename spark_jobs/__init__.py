"""Spark jobs that prove from the topics alone that every ingress record had exactly one end."""
