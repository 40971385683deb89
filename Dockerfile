# The broker and its command in an image: `docker build -t echoless .`; docs/containers.md.

FROM debian:12-slim AS build
# The base's packages are the final stage's as well.
RUN dpkg-query --show --showformat '${Package}\n' > /base \
 && apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv binutils tini \
 && useradd --uid 10001 --user-group --no-create-home --home-dir /data echoless \
 && mkdir /data
RUN python3.11 -m venv /opt/echoless
WORKDIR /build
# What changes seldom comes first: the dependencies have a separate layer.
COPY pyproject.toml .
RUN python3 -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" > requirements.txt \
 && /opt/echoless/bin/pip wheel --no-cache-dir -w wheels -r requirements.txt setuptools wheel
COPY README.md ./
COPY src src
COPY protocol protocol
COPY storage storage
COPY coordinators coordinators
COPY client client
COPY testkit testkit
COPY diagram diagram
COPY broker broker
COPY cli cli
RUN /opt/echoless/bin/pip wheel --no-cache-dir --no-deps --no-index --find-links wheels -w wheels . \
 && /opt/echoless/bin/pip install --no-cache-dir --no-compile --no-index --find-links wheels echoless \
 && /opt/echoless/bin/pip uninstall -q -y pip setuptools \
 && find /opt/echoless/bin -type f ! -name echoless -delete \
 && find /opt/echoless -name '*.so' -exec strip --strip-unneeded {} +
COPY containers/image_files.py .
COPY containers/health.py .
RUN cp health.py /opt/echoless/ \
 && python3 -X no_debug_ranges image_files.py /base /opt/echoless /image

FROM debian:12-slim
COPY --from=build /etc/passwd /etc/group /etc/
COPY --from=build --chown=10001:10001 /data /data
# tini is process 1: it forwards signals from the first moment, and reaps processes left over by `exec`.
COPY --from=build /image /
ENV PATH=/opt/echoless/bin:$PATH \
    ECHOLESS_DATA_DIR=/data \
    ECHOLESS_LISTEN=0.0.0.0:9092 \
    ECHOLESS_ADVERTISE=127.0.0.1:9092 \
    ECHOLESS_NATIVE_LISTEN=0.0.0.0:9093 \
    ECHOLESS_ADMIN_LISTEN=0.0.0.0:8080 \
    ECHOLESS_ADMIN_INSECURE=true
USER echoless
WORKDIR /data
VOLUME /data
EXPOSE 9092 9093 8080
HEALTHCHECK --interval=5s --timeout=4s --start-period=30s --retries=3 \
    CMD ["python3", "-IS", "/opt/echoless/health.py"]
ENTRYPOINT ["tini", "--", "echoless"]
CMD ["serve"]
