// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"strings"
	"time"
)

// Measures of the plot, in pixels.
const (
	barHeight, barGap, groupGap = 16, 3, 18
	labelWidth, plotWidth       = 190, 470
	top                         = 46
)

// SVG plots propagation: for Comity and relay a bar to p50, and a line from
// there to p99.
func (r *Results) SVG() string {
	all := r.sorted()
	height := top + len(all)*(2*barHeight+barGap+groupGap) + 30
	longest := time.Millisecond
	for _, p := range all {
		longest = max(longest, p.Comity.P99, p.Relay.P99)
	}
	x := func(d time.Duration) float64 { return labelWidth + plotWidth*float64(d)/float64(longest) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", labelWidth+plotWidth+70, height)
	b.WriteString(`<rect width="100%" height="100%" fill="#fff"/>` + "\n")
	b.WriteString(`<text x="10" y="20" font-size="14">From a change of an endpoint to the last other cluster: bar to p50, line to p99</text>` + "\n")
	y := top
	for _, p := range all {
		fmt.Fprintf(&b, `<text x="10" y="%d">%d clusters, %d %s</text>`+"\n", y+barHeight+6, p.Clusters, p.Exports, plural(p.Exports))
		for _, bar := range []struct {
			name, color string
			q           Quantiles
		}{{"Comity", "#2b6cb0", p.Comity}, {"relay", "#a0aec0", p.Relay}} {
			middle := float64(y) + barHeight/2
			fmt.Fprintf(&b, `<text x="%d" y="%.0f" text-anchor="end" fill="#555">%s</text>`+"\n", labelWidth-6, middle+4, bar.name)
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", labelWidth, y, x(bar.q.P50)-labelWidth, barHeight, bar.color)
			fmt.Fprintf(&b, `<path d="M%.1f %.1fH%.1fM%.1f %.1fv8" stroke="%s" stroke-width="2" fill="none"/>`+"\n",
				x(bar.q.P50), middle, x(bar.q.P99), x(bar.q.P99), middle-4, bar.color)
			fmt.Fprintf(&b, `<text x="%.1f" y="%.0f" font-size="10">%.1f / %.1f ms</text>`+"\n", x(bar.q.P99)+5, middle+4, milliseconds(bar.q.P50), milliseconds(bar.q.P99))
			y += barHeight + barGap
		}
		y += groupGap - barGap
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func plural(exports int) string {
	if exports == 1 {
		return "export"
	}
	return "exports"
}
