# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

# Packs what `make image` compiled; it compiles nothing itself, so that it cannot make another program than the
# release has. `make image` also packs the same image without Docker, with labels and reproducible times.
#
#	make image && docker build --build-arg TARGETARCH=amd64 -t comity:dev .
FROM scratch
# BuildKit sets it from --platform; a default here would take the place of that.
ARG TARGETARCH
COPY dist/linux-${TARGETARCH}/comity /comity
# By number, so that the kubelet can see that it is not root.
USER 65532:65532
ENTRYPOINT ["/comity"]
