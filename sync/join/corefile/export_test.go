// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package corefile

// Enabled is true if text serves the zone.
func Enabled(text string) bool {
	f, err := read(text)
	return err == nil && f.served()
}
