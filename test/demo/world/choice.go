// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"time"

	"github.com/comity-mcs/comity/test/install"
)

// Kind is how clusters are made. It is a flag's value.
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

// patience bounds every wait of the demo. Comity needs a fraction of a second;
// a busy machine with three control planes may need many, and nodes in Docker
// pull images and start containers.
func (k Kind) patience() time.Duration {
	if k == InDocker {
		return 5 * time.Minute
	}
	return time.Minute
}

func newBackend(w *World) backend {
	if w.Kind == InDocker {
		return &inDocker{world: w}
	}
	return &processes{world: w, agents: map[string]*install.Agent{}}
}
