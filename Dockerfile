# The page: docker build -t jakiro . && docker run --rm -p 7860:7860 -v jakiro-cache:/home/jakiro/.cache jakiro
# On an NVIDIA GPU the same image, with --gpus all: torch's usual wheels for Linux carry CUDA.
# CPU only, some gigabytes smaller: --build-arg TORCH_INDEX_URL=<address of torch's CPU wheels>
FROM python:3.12-slim

# Passes on a CPU run in code that is compiled at the first start
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home jakiro
WORKDIR /home/jakiro/app

ARG TORCH_INDEX_URL=""
RUN pip install --no-cache-dir ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} torch==2.13.0
COPY requirements.txt ./
RUN grep -v '^torch==' requirements.txt > pins.txt && pip install --no-cache-dir torch==2.13.0 -r pins.txt

COPY --chown=jakiro app.py README.md LICENSE ./
COPY --chown=jakiro app ./app
COPY --chown=jakiro jakiro ./jakiro
COPY --chown=jakiro assets ./assets
# Published drafters that are offered beside the package's
COPY --chown=jakiro lab ./lab

USER jakiro
RUN mkdir -p /home/jakiro/.cache
VOLUME /home/jakiro/.cache
ENV GRADIO_SERVER_NAME=0.0.0.0 GRADIO_SERVER_PORT=7860 GRADIO_ANALYTICS_ENABLED=False
# What NVIDIA's container runtime hands in; without it these say nothing
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import http.client as c; p = c.HTTPConnection('127.0.0.1', 7860, timeout=4); p.request('GET', '/status'); raise SystemExit(p.getresponse().status != 200)"]
# The image is for many visitors: none of them may load another model for all
CMD ["python", "app.py", "--fixed-model"]
