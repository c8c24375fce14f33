// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"image/color"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Measures of the plot.
const (
	plotWidth vg.Length = 8 * vg.Inch
	// rowHeight is for one way of one measurement, with the bars of Comity and of the relay.
	rowHeight vg.Length = 36
	barHeight vg.Length = 11
	// headHeight is for the title and the axis.
	headHeight vg.Length = 80
	// margin is kept free on every side.
	margin vg.Length = 6
	// halfRow is from the middle of a row to the middle of a bar, in rows.
	halfRow = 0.18
)

var (
	comityColor = color.RGBA{R: 0x2b, G: 0x6c, B: 0xb0, A: 0xff}
	relayColor  = color.RGBA{R: 0xa0, G: 0xae, B: 0xc0, A: 0xff}
)

// svg plots rows of two bars each: a bar to p50, and a line from there to p99.
func svg(title string, rows []row) (string, error) {
	p, height, err := plotOf(title, rows)
	if err != nil {
		return "", err
	}
	canvas := vgsvg.New(plotWidth, height)
	picture := draw.New(canvas)
	picture.SetColor(p.BackgroundColor)
	picture.Fill(picture.Path())
	p.Draw(inner(picture))
	var out strings.Builder
	if _, err := canvas.WriteTo(&out); err != nil {
		return "", err
	}
	// Where the font is missing, one of the same widths.
	return strings.ReplaceAll(out.String(), "font-family:Liberation Sans;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;"), nil
}

// inner is the part of the picture that the plot fills.
func inner(c draw.Canvas) draw.Canvas { return draw.Crop(c, margin, -margin, margin, -margin) }

// plotOf gives the plot and its height.
func plotOf(title string, rows []row) (*plot.Plot, vg.Length, error) {
	p := plot.New()
	p.Title.Text = title + ": bar to p50, line to p99"
	p.Title.Padding, p.X.Label.Padding, p.Legend.Padding = 4, 4, 4
	p.X.Label.Text = "milliseconds"
	p.X.Min = 0
	p.Y.Width, p.Y.Tick.Length = 0, 0
	p.Legend.Top = true
	var names plot.ConstantTicks
	for i, row := range rows {
		y := -float64(i)
		names = append(names, plot.Tick{Value: y, Label: row.name})
		for n, bar := range row.bars {
			drawn, err := addBar(p, y+halfRow*float64(1-2*n), bar.took, bar.fill)
			if err != nil {
				return nil, 0, err
			}
			if i == 0 {
				p.Legend.Add(bar.name, drawn)
			}
		}
	}
	p.Y.Tick.Marker = names
	// The legend is above the first row.
	p.Y.Min, p.Y.Max = 0.5-float64(len(names)), 1
	useSans(p)
	return p, headHeight + rowHeight*vg.Length(len(names)+1), nil
}

// row is one measurement of two.
type row struct {
	name string
	bars []bar
}

type bar struct {
	name string
	took Quantiles
	fill color.Color
}

func (r *Results) rows() (rows []row) {
	for _, p := range r.sorted() {
		name := fmt.Sprintf("%d clusters, %d %s", p.Clusters, p.Exports, plural(p.Exports))
		rows = append(rows, row{name + ", remote", p.Remote.bars()})
		if p.Local != (Comparison{}) {
			rows = append(rows, row{name + ", local", p.Local.bars()})
		}
	}
	return rows
}

func (c Comparison) bars() []bar {
	return []bar{{"Comity", c.Comity, comityColor}, {"relay", c.Relay, relayColor}}
}

// addBar adds a bar to p50, a line to p99 and a label with both, and gives the bar.
func addBar(p *plot.Plot, y float64, q Quantiles, fill color.Color) (*plotter.BarChart, error) {
	p50, p99 := milliseconds(q.P50), milliseconds(q.P99)
	bar, err := plotter.NewBarChart(plotter.Values{p50}, barHeight)
	if err != nil {
		return nil, err
	}
	bar.Horizontal, bar.XMin, bar.Color, bar.LineStyle.Width = true, y, fill, 0
	line, err := plotter.NewXErrorBars(struct {
		plotter.XYs
		plotter.XErrors
	}{plotter.XYs{{X: p50, Y: y}}, plotter.XErrors{{High: p99 - p50}}})
	if err != nil {
		return nil, err
	}
	line.LineStyle = draw.LineStyle{Color: fill, Width: 2}
	label, err := plotter.NewLabels(plotter.XYLabels{
		XYs: plotter.XYs{{X: p99, Y: y}}, Labels: []string{fmt.Sprintf("%.1f / %.1f ms", p50, p99)},
	})
	if err != nil {
		return nil, err
	}
	label.Offset.X = 5
	label.TextStyle[0].YAlign = draw.YCenter
	label.TextStyle[0].Font.Variant, label.TextStyle[0].Font.Size = "Sans", 8
	p.Add(bar, line, label)
	return bar, nil
}

// useSans sets all texts of the plot in a font without serifs.
func useSans(p *plot.Plot) {
	for style, size := range map[*draw.TextStyle]vg.Length{
		&p.Title.TextStyle: 12, &p.X.Label.TextStyle: 10, &p.X.Tick.Label: 9, &p.Y.Tick.Label: 10, &p.Legend.TextStyle: 10,
	} {
		style.Font.Variant, style.Font.Size = "Sans", size
	}
}

func plural(exports int) string {
	if exports == 1 {
		return "export"
	}
	return "exports"
}
