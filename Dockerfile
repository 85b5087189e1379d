# Untested: no Docker engine was at hand where this was written. It follows docs/install.md, "Without ROS".
#   docker build -t crossspec_ros . && docker run --rm --shm-size=512m crossspec_ros
FROM ubuntu:24.04

RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates g++ make python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /crossspec_ros
COPY . .
RUN make robot

# Fast DDS sends images through shared memory, of which Docker gives 64 MB: run it with --shm-size=512m.
CMD ["make", "demo"]
