// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"

	"github.com/comity-mcs/comity/test/install"
)

// Kind tells how clusters are made. It is a flag's value.
type Kind string

// The kinds of clusters.
const (
	// ControlPlanes are processes; Pods have addresses and nothing runs in them.
	ControlPlanes Kind = "control-planes"
	// InDocker are kind's: everything is real.
	InDocker Kind = "kind"
)

// String, Set and Type implement pflag.Value.
func (k *Kind) String() string { return string(*k) }

// Set takes the name of a kind.
func (k *Kind) Set(text string) error {
	switch given := Kind(text); given {
	case ControlPlanes, InDocker:
		*k = given
		return nil
	}
	return fmt.Errorf("%q is no kind of clusters: expected %s or %s", text, ControlPlanes, InDocker)
}

// Type is what the help calls the value.
func (k *Kind) Type() string { return "kind" }

func newBackend(w *World) backend {
	return &processes{world: w, agents: map[string]*install.Agent{}}
}
