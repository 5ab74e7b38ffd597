# The page on a CPU: docker build -t jakiro . && docker run -p 7860:7860 -v jakiro-cache:/home/jakiro/.cache jakiro
FROM python:3.12-slim

RUN useradd --create-home jakiro
WORKDIR /home/jakiro/app

# Wheels of torch without CUDA, where the builder's pip is pointed at them: --build-arg TORCH_INDEX_URL=…
ARG TORCH_INDEX_URL=""
RUN pip install --no-cache-dir ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} torch==2.13.0
COPY requirements.txt ./
RUN pip install --no-cache-dir torch==2.13.0 -r requirements.txt

COPY --chown=jakiro app.py README.md LICENSE ./
COPY --chown=jakiro app ./app
COPY --chown=jakiro jakiro ./jakiro
COPY --chown=jakiro assets ./assets

USER jakiro
RUN mkdir -p /home/jakiro/.cache
VOLUME /home/jakiro/.cache
ENV GRADIO_SERVER_NAME=0.0.0.0 GRADIO_SERVER_PORT=7860 GRADIO_ANALYTICS_ENABLED=False
EXPOSE 7860
CMD ["python", "app.py"]
