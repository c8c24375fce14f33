// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package admission proves, on a real API server with config/rbac and
// config/admission, which requests the ValidatingAdmissionPolicies refuse, with
// the messages as users read them, and that what Comity and others do in normal
// operation passes. A policy that does not compile refuses everything, and one
// that selects the wrong objects nothing, so each case is here with its opposite.
package admission
