# Three images of one recipe, every package locked by hash as in `make setup`:
#   worker  (what is built unless a target is named): the worker alone; no Triton, no Redis, no demo
#   demo    the same with the embedded Triton and its small model, which run on a CPU
#   flower  the same with Celery's dashboard

FROM python:3.11-slim-bookworm AS base
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src


# The wheel is made by another environment, so that nothing but a lock and the worker is in one that ships.
FROM base AS wheel
COPY requirements/build.txt requirements/
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --quiet --no-deps --only-binary :all: --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY settings settings
COPY tasks tasks
COPY worker worker
RUN /opt/build/bin/python -m hatchling build -t wheel -d dist


# Each environment: first what changes seldom, so that a change of the code installs nothing anew.
FROM base AS worker-packages
COPY requirements/worker.txt requirements/
RUN python -m venv /opt/speedinfer \
    && /opt/speedinfer/bin/pip install --quiet --no-deps --only-binary :all: --require-hashes -r requirements/worker.txt
COPY --from=wheel /src/dist dist
RUN /opt/speedinfer/bin/pip install --quiet --no-deps dist/*.whl \
    && /opt/speedinfer/bin/pip uninstall --quiet --yes pip setuptools

FROM base AS demo-packages
COPY requirements/demo.txt requirements/
RUN python -m venv /opt/speedinfer \
    && /opt/speedinfer/bin/pip install --quiet --no-deps --only-binary :all: --require-hashes -r requirements/demo.txt
COPY --from=wheel /src/dist dist
RUN /opt/speedinfer/bin/pip install --quiet --no-deps dist/*.whl \
    && /opt/speedinfer/bin/pip uninstall --quiet --yes pip

FROM base AS flower-packages
COPY requirements/flower.txt requirements/
RUN python -m venv /opt/speedinfer \
    && /opt/speedinfer/bin/pip install --quiet --no-deps --only-binary :all: --require-hashes -r requirements/flower.txt
COPY --from=wheel /src/dist dist
RUN /opt/speedinfer/bin/pip install --quiet --no-deps dist/*.whl \
    && /opt/speedinfer/bin/pip uninstall --quiet --yes pip setuptools


# What all three start as: nobody, on a file system that may be read-only. Bytecode came with the packages.
FROM python:3.11-slim-bookworm AS shipped
RUN useradd --system --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin speedinfer
ENV PATH=/opt/speedinfer/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /opt/speedinfer


FROM shipped AS demo
# The small model's runtime is built with OpenMP.
RUN apt-get update --quiet --quiet \
    && apt-get install --quiet --quiet --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=demo-packages /opt/speedinfer /opt/speedinfer
USER 10001:10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["speedinfer"]
CMD ["demo"]


FROM shipped AS flower
COPY --from=flower-packages /opt/speedinfer /opt/speedinfer
USER 10001:10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["celery", "-A", "worker.celery"]
CMD ["flower", "--address=0.0.0.0", "--port=5555"]


FROM shipped AS worker
COPY --from=worker-packages /opt/speedinfer /opt/speedinfer
USER 10001:10001
# Drains: what runs is finished and settled, what does not end in drain_seconds goes back to its queue.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=10s --start-period=30s --retries=3 CMD ["speedinfer", "status", "--this-worker"]
ENTRYPOINT ["speedinfer"]
CMD ["worker"]
