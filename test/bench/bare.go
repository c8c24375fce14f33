// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/comity-mcs/comity/test/bench/fleet"
	"github.com/comity-mcs/comity/test/bench/result"
	"github.com/comity-mcs/comity/test/clusters/controlplane"
)

var (
	benchNamespace = regexp.MustCompile(`bench-([0-9]{2})\b`)
	benchService   = regexp.MustCompile(`service-[0-9]{5}`)
)

// triedAtOnce are how many imports the bare client writes at once; it uses the fastest,
// which it finds with triedImports of them.
var triedAtOnce = []int{2, 4, 8, 16, 32}

const triedImports = 200

// bare has a client without cache, queue and decision make the writes of a cold start in
// cluster from again, in cluster m, which has no imports.
func (b *bench) bare(ctx context.Context, from string, m *fleet.Member, writes []controlplane.Write) (result.Bare, error) {
	for n := range writes { // its own exchange namespace
		writes[n].URI = strings.ReplaceAll(writes[n].URI, "/namespaces/comity-"+from, "/namespaces/comity-"+m.ID())
		writes[n].Body = bytes.ReplaceAll(writes[n].Body, []byte(`"namespace":"comity-`+from), []byte(`"namespace":"comity-`+m.ID()))
	}
	imports := byImport(writes)
	b.say("a bare client makes the writes of %d imports again", len(imports))
	client, err := rest.HTTPClientFor(m.AgentConfig)
	if err != nil {
		return result.Bare{}, err
	}
	best := result.Bare{}
	for n, atOnce := range triedAtOnce {
		took, _, err := replay(ctx, m, client, imports[:min(triedImports, len(imports))], fmt.Sprintf("tried%d", n), atOnce)
		if err != nil {
			return result.Bare{}, err
		}
		b.say("%d imports, %d at once: %v", min(triedImports, len(imports)), atOnce, took.Round(time.Millisecond))
		if best.Took == 0 || took < best.Took {
			best = result.Bare{AtOnce: atOnce, Took: took}
		}
	}
	best.Took, best.Writes, err = replay(ctx, m, client, imports, "bare", best.AtOnce)
	b.say("%d writes, %d imports at once: %v", best.Writes, best.AtOnce, best.Took.Round(time.Millisecond))
	return best, err
}

// byImport are the accepted writes for each import, in the order in which they were made.
func byImport(writes []controlplane.Write) [][]controlplane.Write {
	imports := map[string][]controlplane.Write{}
	for _, w := range writes {
		if name := benchService.FindString(w.URI + string(w.Body)); name != "" && w.Code < http.StatusBadRequest {
			imports[name] = append(imports[name], w)
		}
	}
	for _, of := range imports {
		slices.SortStableFunc(of, func(a, b controlplane.Write) int { return a.Received.Compare(b.Received) })
	}
	return slices.Collect(maps.Values(imports))
}

// replay makes the writes in namespaces that begin with prefix.
func replay(ctx context.Context, m *fleet.Member, client *http.Client, imports [][]controlplane.Write, prefix string, atOnce int) (time.Duration, int, error) {
	for n := range namespaces {
		if err := m.CreateNamespace(ctx, fmt.Sprintf("%s-%02d", prefix, n)); err != nil {
			return 0, 0, err
		}
	}
	requests := make([][]*http.Request, len(imports))
	sent := 0
	for n, writes := range imports {
		for _, w := range writes {
			request, err := repeated(ctx, m.AgentConfig.Host, w, prefix)
			if err != nil {
				return 0, 0, err
			}
			requests[n] = append(requests[n], request)
			sent++
		}
	}
	begun := time.Now()
	group, _ := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, one := range requests {
		group.Go(func() error {
			for _, request := range one {
				if err := send(client, request); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	return time.Since(begun), sent, err
}

// repeated is the request of a write, for another namespace. The UID that it expects goes,
// and the version, unless it is the one that no object has.
func repeated(ctx context.Context, host string, w controlplane.Write, prefix string) (*http.Request, error) {
	uri, body := benchNamespace.ReplaceAllString(w.URI, prefix+"-$1"), benchNamespace.ReplaceAll(w.Body, []byte(prefix+"-$1"))
	method, content := http.MethodPatch, string(types.MergePatchType)
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, fmt.Errorf("%s %s: %w", w.Verb, w.URI, err)
	}
	if metadata, has := object["metadata"].(map[string]any); has {
		delete(metadata, "uid")
		if metadata["resourceVersion"] != "1" {
			delete(metadata, "resourceVersion")
		}
	}
	switch {
	case w.Verb == "create":
		method, content = http.MethodPost, "application/json"
	case w.Verb == "update":
		method, content = http.MethodPut, "application/json"
	case object["kind"] != nil:
		content = string(types.ApplyPatchType)
	}
	body, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, host+uri, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", content)
	request.Header.Set("Accept", "application/json")
	return request, nil
}

func send(client *http.Client, request *http.Request) error {
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s: %s", request.Method, request.URL.Path, answer.Status, text)
	}
	return err
}
