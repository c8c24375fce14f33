// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

const (
	// kepURL is the specification; sections are its headings, as links name them.
	kepURL     = "https://github.com/kubernetes/enhancements/tree/master/keps/sig-multicluster/1645-multi-cluster-services-api"
	kepLabel   = "KEP-1645#"
	beyondText = "beyond the KEP"
)

// kep names the sections of KEP-1645 that the specs below it prove.
func kep(sections ...string) Labels {
	labels := make(Labels, len(sections))
	for i, s := range sections {
		labels[i] = kepLabel + s
	}
	return labels
}

// beyond marks specs of what Comity does where the KEP leaves it open.
func beyond() Labels { return Labels{beyondText} }

// sectionsOf are the links of what a spec proves.
func sectionsOf(r types.SpecReport) (links []string) {
	for _, label := range r.Labels() {
		if section, found := strings.CutPrefix(label, kepLabel); found {
			links = append(links, kepURL+"#"+section)
		} else if label == beyondText {
			links = append(links, label)
		}
	}
	return links
}

// A spec that proves nothing known fails; each carries its links into the report.
var _ = BeforeEach(func() {
	links := sectionsOf(CurrentSpecReport())
	if len(links) == 0 {
		Fail("this spec names no section of KEP-1645: add kep(...), or beyond(), to its Describe")
	}
	AddReportEntry("proves", strings.Join(links, " "), ReportEntryVisibilityFailureOrVerbose)
})

var _ = ReportAfterSuite("what is proven, by section of KEP-1645", func(report Report) {
	printTable(os.Stdout, report)
})

func printTable(out io.Writer, report Report) {
	bySection := map[string][]string{}
	var sections []string
	for _, r := range report.SpecReports {
		if r.LeafNodeType != types.NodeTypeIt || r.State == types.SpecStateSkipped || r.State == types.SpecStatePending {
			continue
		}
		for _, s := range sectionsOf(r) {
			if !slices.Contains(sections, s) {
				sections = append(sections, s)
			}
			bySection[s] = append(bySection[s], fmt.Sprintf("%-7s %5.1fs  %s", r.State, r.RunTime.Seconds(), r.FullText()))
		}
	}
	slices.Sort(sections)
	for _, s := range sections {
		_, _ = fmt.Fprintf(out, "\n%s\n  %s\n", s, strings.Join(bySection[s], "\n  "))
	}
}
