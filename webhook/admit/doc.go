// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package admit turns verdicts into answers to the API server, and the
// export-to label into the annotation.
//
// It takes values and gives values: what is asked, the verdict, the metadata of
// an object; an Answer, or a JSON patch (RFC 6902). It has no client, clock,
// logger, metric or context. It follows admission.k8s.io/v1 and never decides
// on its own what may be exported.
package admit
