# The service, the Dagster UI and every command, for CPUs or, with --build-arg TORCH=cu130, for
# NVIDIA GPUs (docs/containers.md). Environments of trainers and vLLM are made on first use, in /data.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
# PyTorch's build: cpu, a CUDA version such as cu130, or empty for what the package index has.
ARG TORCH=cpu
ENV UV_TORCH_BACKEND=${TORCH} UV_LINK_MODE=copy
WORKDIR /opt/interleave
COPY requirements requirements
COPY inference/environments/installers.py inference/environments/
RUN python3 -m venv .venv \
    && .venv/bin/python -m pip install --no-cache-dir -q $(grep ^uv== requirements/core.txt)
# uv does not take an empty one.
RUN [ -n "$UV_TORCH_BACKEND" ] || unset UV_TORCH_BACKEND; \
    for pins in core cluster; do \
        .venv/bin/python inference/environments/installers.py requirements/$pins.txt || exit 1; \
    done; \
    rm -rf /root/.cache
COPY . .
RUN .venv/bin/python -m pip install --no-cache-dir -q --no-deps --no-build-isolation -e . \
    && .venv/bin/python -m compileall -q assets dagster_project inference schemas training warehouse

FROM ${PYTHON_IMAGE}
ARG TORCH=cpu
COPY --from=build /opt/interleave /opt/interleave
RUN useradd --uid 10001 --create-home interleave && install -d -o interleave -g interleave /data
USER interleave
WORKDIR /data
ENV PATH=/opt/interleave/.venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    UV_TORCH_BACKEND=${TORCH} \
    HF_HOME=/data/huggingface \
    INTERLEAVE_ENVIRONMENTS=/data/environments \
    INTERLEAVE_HOME=/data/home
VOLUME /data
EXPOSE 3000 8030
ENTRYPOINT ["interleave"]
CMD ["serve", "--host", "0.0.0.0"]
