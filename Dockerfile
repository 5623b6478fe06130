# Builds, updates and serves a retriever, installed from the wheel, without root; docs/install.md says how to run it.
# `docker buildx build --platform linux/amd64,linux/arm64 .` makes it for both processors.
FROM python:3.13-slim AS build
COPY constraints.txt dist/liebig-*.whl /tmp/
# EXTRAS= leaves torch out, for an image that only searches and serves. TORCH_INDEX is where builds of torch for CPUs are.
ARG EXTRAS=[train]
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN python -m venv /opt/liebig \
 && /opt/liebig/bin/pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" -c /tmp/constraints.txt "$(ls /tmp/liebig-*.whl)${EXTRAS}"

FROM python:3.13-slim
# Compiled kernels and the unpacked encoder are kept in the home; the folder of retrievers is a volume of the user's.
RUN useradd --create-home --uid 10001 liebig && mkdir /data && chown liebig /data
COPY --from=build /opt/liebig /opt/liebig
ENV PATH=/opt/liebig/bin:$PATH NUMBA_CACHE_DIR=/home/liebig/.cache/numba
USER liebig
WORKDIR /data
EXPOSE 8765
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8765/health', timeout=4)"]
ENTRYPOINT ["liebig"]
# Other machines reach the container, so the server wants a token: -e LIEBIG_TOKEN=...
CMD ["serve", "/data/retriever", "--host", "0.0.0.0", "--port", "8765"]
