// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/comity-mcs/comity/sync/model"
)

// confirmation is the value of model.AnnotationConfirmTakeover: "<cluster>/<uid>", or a
// bare UID. A member chooses the UID that it publishes, so a bare one confirms only an
// export of which no other cluster has the UID.
type confirmation struct {
	text    string // empty if nothing is confirmed
	cluster model.ClusterID
	uid     types.UID
	bare    bool
}

// confirmation is what the annotation of the ServiceImport confirms.
func (v ImportView) confirmation() confirmation {
	own := v.Current.Import
	if own == nil || !model.IsManaged(own) {
		return confirmation{}
	}
	text := own.Annotations[model.AnnotationConfirmTakeover]
	cluster, uid, qualified := strings.Cut(text, "/")
	if !qualified {
		return confirmation{text: text, uid: types.UID(text), bare: true}
	}
	return confirmation{text: text, cluster: model.ClusterID(cluster), uid: types.UID(uid)}
}

// isOf reports whether it names e.
func (c confirmation) isOf(e model.Export) bool {
	return c.text != "" && c.uid == e.UID && (c.bare || c.cluster == e.Cluster)
}

// isAmbiguous reports whether it names e by a UID that another cluster has, or had, too.
func (c confirmation) isAmbiguous(e model.Export, known []model.SourceExport) bool {
	return c.bare && slices.ContainsFunc(known, func(s model.SourceExport) bool { return s.UID == e.UID && s.Cluster != e.Cluster })
}

// confirmedNothing adds a problem if a confirmation is not needed: no takeover is
// held, and the confirmed export does not decide.
func (v ImportView) confirmedNothing(p precedence) precedence {
	confirmed := v.confirmation()
	if confirmed.text != "" && !slices.ContainsFunc(p.ordered, confirmed.isOf) {
		p.problems = append(p.problems, v.notHeld(confirmed))
	}
	return p
}

func (v ImportView) notHeld(confirmed confirmation) model.Problem {
	return v.confirmationProblem(confirmed, "no takeover by that export waits for a confirmation")
}

func (v ImportView) ambiguous(confirmed confirmation) model.Problem {
	return v.confirmationProblem(confirmed, "more than one cluster publishes that UID, or did")
}

func (v ImportView) confirmationProblem(confirmed confirmation, cause string) model.Problem {
	return model.Problem{Reason: model.ReasonInvalidAnnotation, Message: fmt.Sprintf(
		"ServiceImport %s, annotation %s is %s: %s, so the annotation has no effect; set it to the <cluster>/<uid> that condition TakeoverHeld names, or remove it",
		v.Local.Key, model.AnnotationConfirmTakeover, model.Quote(confirmed.text), cause)}
}
