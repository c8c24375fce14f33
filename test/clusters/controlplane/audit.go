// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// auditPolicy logs who wrote what, without bodies, and nothing that only reads.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
# Reviews are questions: they are created, and stored nowhere.
- level: None
  resources: [{group: authentication.k8s.io}, {group: authorization.k8s.io}]
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`

// auditPolicyOf is auditPolicy, with the bodies of requests if bodies is true.
func auditPolicyOf(bodies bool) string {
	if bodies {
		return strings.Replace(auditPolicy, "level: Metadata", "level: Request", 1)
	}
	return auditPolicy
}

// AuditLog is the path of the API server's audit log: one event of audit.k8s.io/v1 in JSON per write and line.
func (c *Cluster) AuditLog() string { return filepath.Join(c.dir, "audit.log") }

// Write is one request that changed, or tried to change, an object.
type Write struct {
	// Time is when it was answered, Received when it arrived: writes can be answered in another order.
	Time, Received time.Time
	// User as authenticated, such as system:serviceaccount:comity-system:comity.
	User string
	// Verb is create, update, patch, delete or deletecollection.
	Verb string
	// Resource is group/plural, or the plural alone in the core group, with /subresource if any.
	Resource, Namespace, Name string
	// Code is the HTTP status of the answer.
	Code int32
	// URI and Body are those of the request. Body is empty without Options.AuditBodies.
	URI  string
	Body json.RawMessage
}

// Writes lists the writes that the API server answered after since, oldest
// first, dry runs left out. An administrator's are of user "admin".
func (c *Cluster) Writes(since time.Time) ([]Write, error) {
	all, err := c.audited.read(c.AuditLog())
	if err != nil {
		return nil, fmt.Errorf("read the audit log of cluster %s: %w", c.id, err)
	}
	var writes []Write
	for _, write := range all {
		if write.Time.After(since) {
			writes = append(writes, write)
		}
	}
	return writes, nil
}

// audited is what was read of an audit log: each line of it is parsed once.
type audited struct {
	mu     sync.Mutex
	offset int64
	writes []Write
}

// read reads what was added, and returns everything.
func (a *audited) read(path string) ([]Write, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // made with the first write
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(a.offset, io.SeekStart); err != nil {
		return nil, err
	}
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return a.writes, nil // an incomplete last line is a write that is still going on
		}
		if err != nil {
			return nil, err
		}
		write, ok, err := parseWrite(line)
		if err != nil {
			return nil, err
		}
		a.offset += int64(len(line))
		if ok {
			a.writes = append(a.writes, write)
		}
	}
}

// parseWrite reads what of an audit event Write has; ok is false for one that changed nothing.
func parseWrite(line []byte) (w Write, ok bool, err error) {
	var event struct {
		Stage, Verb, RequestURI string
		StageTimestamp          time.Time
		RequestReceived         time.Time `json:"requestReceivedTimestamp"`
		User                    struct{ Username string }
		ObjectRef               struct{ APIGroup, Resource, Subresource, Namespace, Name string }
		ResponseStatus          struct{ Code int32 }
		RequestObject           json.RawMessage
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return Write{}, false, err
	}
	if event.Stage != "ResponseComplete" || strings.Contains(event.RequestURI, "dryRun=") {
		return Write{}, false, nil
	}
	resource := event.ObjectRef.Resource
	if group := event.ObjectRef.APIGroup; group != "" {
		resource = group + "/" + resource
	}
	if sub := event.ObjectRef.Subresource; sub != "" {
		resource += "/" + sub
	}
	return Write{
		Time: event.StageTimestamp, Received: event.RequestReceived, User: event.User.Username, Verb: event.Verb, Resource: resource,
		Namespace: event.ObjectRef.Namespace, Name: event.ObjectRef.Name, Code: event.ResponseStatus.Code,
		URI: event.RequestURI, Body: event.RequestObject,
	}, true, nil
}
