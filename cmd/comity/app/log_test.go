// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// Lines of Comity and of client-go have one format, and a failure is one line.
func TestEachLineOfTheLogHasTheFormatOfTheFlag(t *testing.T) {
	for _, format := range []string{logJSON, logText} {
		var out bytes.Buffer
		log := newLog(Options{LogFormat: format}, &out)
		klog.SetLogger(log)
		log.Error(errors.New("no route"), "peer not read", "peer", "b")
		klog.ErrorS(errors.New("no route"), "watch ended")
		klog.Warning("deprecated")
		klog.ClearLogger()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 {
			t.Fatalf("%s: %d lines; expected 3:\n%s", format, len(lines), out.String())
		}
		for _, line := range lines {
			var fields map[string]any
			if err := json.Unmarshal([]byte(line), &fields); (err == nil) != (format == logJSON) {
				t.Errorf("%s: %q: %v", format, line, err)
			}
			if format == logJSON && fields["level"] == "error" && fields["error"] != "no route" {
				t.Errorf("%s: an error without its text", line)
			}
		}
	}
}
