# The worker alone: no Triton, no Redis, no demo. Every package is locked by hash, as in `make setup`.

FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

# First what changes seldom, so that a change of the code installs nothing anew.
COPY requirements/build.txt requirements/worker.txt requirements/
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --quiet --no-deps --only-binary :all: --require-hashes -r requirements/build.txt \
    && python -m venv /opt/speedinfer \
    && /opt/speedinfer/bin/pip install --quiet --no-deps --only-binary :all: --require-hashes -r requirements/worker.txt

COPY pyproject.toml README.md LICENSE ./
COPY settings settings
COPY tasks tasks
COPY worker worker
# The wheel is made by another environment, so that nothing but the lock and the worker is in the one that ships.
RUN /opt/build/bin/python -m hatchling build -t wheel -d dist \
    && /opt/speedinfer/bin/pip install --quiet --no-deps dist/*.whl \
    && /opt/speedinfer/bin/pip uninstall --quiet --yes pip setuptools


FROM python:3.11-slim-bookworm
RUN useradd --system --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin speedinfer
COPY --from=build /opt/speedinfer /opt/speedinfer
# Bytecode came with the packages; nothing is written at run time, so the file system may be read-only.
ENV PATH=/opt/speedinfer/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /opt/speedinfer

# Drains: what runs is finished and settled, what does not end in drain_seconds goes back to its queue.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=10s --start-period=30s --retries=3 CMD ["speedinfer", "status", "--this-worker"]
ENTRYPOINT ["speedinfer"]
CMD ["worker"]
