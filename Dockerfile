# A server for a retriever folder, installed from the wheel; docs/serving.md says how to build and run it.
FROM python:3.12-slim AS build
COPY constraints.txt dist/liebig-*.whl /tmp/
# EXTRAS=[train] adds torch, for rerankers and for encoders that need it to encode questions.
ARG EXTRAS=
RUN python -m venv /opt/liebig \
 && /opt/liebig/bin/pip install --no-cache-dir -c /tmp/constraints.txt "$(ls /tmp/liebig-*.whl)${EXTRAS}"

FROM python:3.12-slim
# The retriever's folder is only read; with EXTRAS=[train] numba keeps compiled code in the home.
RUN useradd --create-home --uid 10001 liebig
COPY --from=build /opt/liebig /opt/liebig
ENV PATH=/opt/liebig/bin:$PATH NUMBA_CACHE_DIR=/home/liebig/.cache/numba
USER liebig
WORKDIR /home/liebig
EXPOSE 8765
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/health', timeout=4)"]
# Other machines reach the container, so the server wants a token: -e LIEBIG_TOKEN=...
ENTRYPOINT ["liebig", "serve", "/retriever", "--host", "0.0.0.0", "--port", "8765"]
