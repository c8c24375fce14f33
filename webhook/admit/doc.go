// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package admit turns verdicts into answers to the API server, and the
// export-to label into the annotation.
//
// It takes a subject and its verdict, and gives an Answer; or it takes the metadata of
// an object, and changes it. It follows admission.k8s.io/v1 and never decides on its own
// what may be exported. It is apart from package webhook because it is pure: no client,
// clock, logger, metric or context.
package admit
