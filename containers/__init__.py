"""The image and the compose file, really built and run: `make test-containers`, with podman."""
