// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "k8s.io/apimachinery/pkg/util/resourceversion"

// IsOlderVersion reports whether resourceVersion is comes before was in one store: a
// store that was at was and is at is was restored from a backup. It is false for versions
// that are no numbers: they cannot be compared.
func IsOlderVersion(is, was string) bool {
	order, err := resourceversion.CompareResourceVersion(is, was)
	return err == nil && order < 0
}
