"""The JAVA_HOME for `spark-submit`, printed by `python -m spark_jobs.java_home`."""

from spark_jobs.runtime.session import java_home

if __name__ == "__main__":
    print(java_home())
