"""Jar paths for `spark-submit --jars`, printed by `python -m spark_jobs.jars`.
Missing jars are fetched into the user's cache.
"""

from spark_jobs.runtime.session import connector_jars

if __name__ == "__main__":
    print(",".join(map(str, connector_jars())))
