// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

// Package verify is `kubectl comity verify`: it checks that Services are
// reachable by their clusterset name, from every cluster to every other.
//
// In each cluster it creates a temporary namespace with a Pod of Comity's own
// image, a Service and a ServiceExport, waits until every cluster imports each
// of them, and fetches all of them from all of them. It gives a Result with one
// Check for each way, and for a failed one the broken step, which package trace
// finds. It removes what it created, even when it is interrupted, and changes nothing else.
package verify
