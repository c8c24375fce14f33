// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package process

import "syscall"

// attributes puts a child into a group of its own and ends it when this process dies, however that happens.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
