// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"testing"
	"time"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/font/liberation"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"
)

// label is a text of the plot and the room that it takes.
type label struct {
	text string
	room vg.Rectangle
}

// labels draws the plot and gives its texts.
func labels(t *testing.T, rows []row) (all []label, picture vg.Rectangle) {
	t.Helper()
	p, height, err := plotOf("From a change of an endpoint until it is written elsewhere", rows)
	if err != nil {
		t.Fatal(err)
	}
	var drawn recorder.Canvas
	p.Draw(inner(draw.NewCanvas(&drawn, plotWidth, height)))
	fonts := font.NewCache(liberation.Collection())
	for _, action := range drawn.Actions {
		switch a := action.(type) {
		case *recorder.Rotate, *recorder.Translate, *recorder.Scale:
			t.Fatalf("%s: the test does not follow it", action.Call())
		case *recorder.FillString:
			face := fonts.Lookup(a.Font, a.Size)
			extents := face.Extents()
			all = append(all, label{a.String, vg.Rectangle{
				Min: a.Point.Sub(vg.Point{Y: extents.Descent}),
				Max: a.Point.Add(vg.Point{X: face.Width(a.String), Y: extents.Ascent}),
			}})
		}
	}
	return all, vg.Rectangle{Max: vg.Point{X: plotWidth, Y: height}}
}

func TestEveryLabelIsInThePictureAndApart(t *testing.T) {
	slow := sample()
	slow.AddPropagation(Propagation{Clusters: 20, Exports: 100_000, Changes: 1, Remote: Comparison{Comity: Quantiles{P50: 9 * time.Second, P99: 100 * time.Second}, Relay: Quantiles{P50: 1, P99: 2}}})
	equal := &Results{}
	equal.AddPropagation(Propagation{Clusters: 2, Exports: 1, Remote: Comparison{Comity: Quantiles{P50: 1, P99: 1}, Relay: Quantiles{P50: 1, P99: 1}}})
	for name, rows := range map[string][]row{
		"usual": sample().rows(), "one slow measurement": slow.rows(), "one measurement": equal.rows(), "a large clusterset": sample().Scale.scaleRows(),
	} {
		t.Run(name, func(t *testing.T) {
			all, picture := labels(t, rows)
			if want := 3 * len(rows); len(all) < want {
				t.Fatalf("got %d labels, want at least %d: a name and two times for each row", len(all), want)
			}
			for i, a := range all {
				if a.room.Min.X < picture.Min.X || a.room.Max.X > picture.Max.X || a.room.Min.Y < picture.Min.Y || a.room.Max.Y > picture.Max.Y {
					t.Errorf("%q takes %v, outside the picture %v", a.text, a.room, picture)
				}
				for _, b := range all[:i] {
					if a.room.Min.X < b.room.Max.X && b.room.Min.X < a.room.Max.X && a.room.Min.Y < b.room.Max.Y && b.room.Min.Y < a.room.Max.Y {
						t.Errorf("%q and %q overlap: %v, %v", a.text, b.text, a.room, b.room)
					}
				}
			}
		})
	}
}
