// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package process

import "syscall"

// attributes puts a child into a group of its own. Only Linux can tie its life to ours.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
