"""Prints Spark's connector to Kafka as `spark-submit --jars` wants it: `python -m spark_jobs.jars`.

Fetches what the user's cache lacks.
"""

from spark_jobs.runtime.session import connector_jars

if __name__ == "__main__":
    print(",".join(map(str, connector_jars())))
