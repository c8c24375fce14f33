# Copyright The Comity Authors
# SPDX-License-Identifier: Apache-2.0

FROM golang:1.26 AS dependencies
WORKDIR /src
# Modules change less often than code, so they are a layer of their own.
COPY go.mod go.sum ./
RUN go mod download
# So does compiling what those modules hold, which takes minutes. The packages that pull in almost all of it are
# enough: whatever is not compiled here is compiled below. Same flags as below, or nothing is used again.
RUN CGO_ENABLED=0 go build -trimpath sigs.k8s.io/controller-runtime sigs.k8s.io/controller-runtime/pkg/log/zap \
	sigs.k8s.io/mcs-api/pkg/apis/v1beta1 github.com/open-policy-agent/opa/v1/rego

FROM dependencies AS build
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/comity-mcs/comity/cmd/comity/app.version=${VERSION}" -o /comity ./cmd/comity

FROM gcr.io/distroless/static:nonroot
COPY --from=build /comity /comity
# By number, so that the kubelet can tell that it is not root.
USER 65532:65532
ENTRYPOINT ["/comity"]
