# Two images. `docker build --target proxy .` builds the proxy, and is the default.
# `docker build --target audit .` builds the Spark audit. docs/release.md says how they are checked.

ARG PYTHON=python:3.13.16-slim-trixie

# The build stage has pip, and the wheel of this folder. The environments below have no pip.
FROM ${PYTHON} AS builder
WORKDIR /build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_NO_INPUT=1
COPY requirements-build.lock ./
RUN python3 -m venv /build/tools \
 && /build/tools/bin/pip install --require-hashes --no-deps --only-binary :all: \
      -r requirements-build.lock
COPY pyproject.toml README.md LICENSE kafka_delay_proxy.py ./
COPY proxy ./proxy
COPY storage ./storage
COPY spark_jobs ./spark_jobs
RUN /build/tools/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /build/wheels .

FROM builder AS proxy-environment
COPY requirements-proxy.lock ./
RUN /build/tools/bin/pip wheel --require-hashes --no-deps --only-binary :all: \
      --wheel-dir /build/wheels -r requirements-proxy.lock \
 && python3 -m venv --without-pip /opt/kafka-delay-proxy \
 && /build/tools/bin/pip --python /opt/kafka-delay-proxy/bin/python install \
      --no-index --no-deps /build/wheels/*.whl

# pyspark comes as source. Its jars and its Java are fetched here, so that an audit fetches nothing.
FROM builder AS audit-environment
ENV XDG_CACHE_HOME=/opt/cache
COPY requirements-audit.lock ./
RUN /build/tools/bin/pip wheel --require-hashes --no-deps --no-build-isolation \
      --wheel-dir /build/wheels -r requirements-audit.lock \
 && python3 -m venv --without-pip /opt/kafka-delay-proxy \
 && /build/tools/bin/pip --python /opt/kafka-delay-proxy/bin/python install \
      --no-index --no-deps /build/wheels/*.whl \
 && /opt/kafka-delay-proxy/bin/python -m spark_jobs.jars \
 && /opt/kafka-delay-proxy/bin/python -m spark_jobs.java_home

# Both images have a user without rights. Spark needs the user's name. Debian has its own user `proxy`.
FROM ${PYTHON} AS base
RUN groupadd --gid 65532 delay-proxy \
 && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /data \
      --shell /usr/sbin/nologin delay-proxy \
 && install -d -o 65532 -g 65532 -m 0750 /data
ENV PATH=/opt/kafka-delay-proxy/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /data
USER 65532:65532
ENTRYPOINT ["kafka-delay-proxy"]

FROM base AS audit
ENV XDG_CACHE_HOME=/opt/cache \
    MPLCONFIGDIR=/tmp/matplotlib
COPY --from=audit-environment /opt/cache /opt/cache
COPY --from=audit-environment /opt/kafka-delay-proxy /opt/kafka-delay-proxy
CMD ["audit", "--help"]

FROM base AS proxy
COPY image/healthy.py /opt/healthy.py
COPY image/proxy.yaml /etc/kafka-delay-proxy/proxy.yaml
COPY --from=proxy-environment /opt/kafka-delay-proxy /opt/kafka-delay-proxy
EXPOSE 9464
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-I", "/opt/healthy.py"]
CMD ["run", "--config", "/etc/kafka-delay-proxy/proxy.yaml"]
