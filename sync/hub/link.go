// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/comity-mcs/comity/sync/model"
	"github.com/comity-mcs/comity/sync/remote"
	"github.com/comity-mcs/comity/sync/remote/budget"
	"github.com/comity-mcs/comity/sync/remote/kubeconfig"
)

// placeholder replaces the hub's address in clients that are made before it
// is known; ".invalid" resolves nowhere.
const placeholder = "https://exchange.invalid"

// link sends every request to the hub as the kubeconfig in the file says now.
type link struct {
	path      string
	transport *remote.Transport
	// data is the content of the file in use, and server the one that it names; nil until the
	// file was there and good. Only use reads and writes data.
	data   []byte
	server atomic.Pointer[url.URL]
	// wrong is why the file is not used as it is now; empty if it is.
	wrong atomic.Pointer[string]
}

func newLink(path string, self model.ClusterID) *link {
	l := &link{path: path, transport: remote.NewTransport(self, budget.Limits{})}
	l.wrong.Store(new(fmt.Sprintf("the kubeconfig of the exchange, %s, was not read yet", path)))
	return l
}

// errServerChanged ends the process: another server may hold other data, and
// what was read from the one says nothing about the other.
var errServerChanged = errors.New("the kubeconfig of the exchange names another server than before; starting over with it")

// read uses what the file contains now, and logs once what is wrong with it. The only
// error is errServerChanged.
func (l *link) read(log logr.Logger) error {
	changed, err := l.use()
	wrong := ""
	if errors.Is(err, errServerChanged) {
		return err
	} else if err != nil {
		wrong = fmt.Sprintf("the kubeconfig of the exchange, %s: %v", l.path, err)
	}
	switch before := *l.wrong.Swap(&wrong); {
	case wrong != "" && wrong != before:
		log.Error(errors.New(wrong), "the kubeconfig of the exchange is not used")
	case changed:
		log.Info("the kubeconfig of the exchange was read")
	}
	return nil
}

// use uses what the file contains now; changed reports whether that is new. A file that
// cannot be used leaves in place what was used before. The error holds nothing of the file.
func (l *link) use() (changed bool, err error) {
	data, err := os.ReadFile(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return false, errors.New("the file does not exist; run kubectl comity join, and mount the Secret that it makes")
	} else if err != nil {
		return false, err
	}
	before := l.server.Load()
	if before != nil && bytes.Equal(l.data, data) {
		return false, nil
	}
	config, err := kubeconfig.Sanitize(data)
	if err != nil {
		return false, err
	}
	server, _ := url.Parse(config.Host) // which Sanitize has done
	if before != nil && *before != *server {
		return false, errServerChanged
	}
	if err := l.transport.Use(config); err != nil {
		return false, err
	}
	l.data = data
	l.server.Store(server)
	return true, nil
}

// RoundTrip implements http.RoundTripper.
func (l *link) RoundTrip(request *http.Request) (*http.Response, error) {
	server := l.server.Load()
	if server == nil {
		if request.Body != nil {
			_ = request.Body.Close() // the contract of RoundTrip; there is nothing to lose
		}
		return nil, l.problem()
	}
	request = request.Clone(request.Context())
	request.URL.Scheme, request.URL.Host = server.Scheme, server.Host
	request.URL.Path = strings.TrimRight(server.Path, "/") + request.URL.Path
	request.Host = ""
	return l.transport.RoundTrip(request)
}

// problem is why there is no access at all; nil if there is.
func (l *link) problem() error {
	if l.server.Load() != nil {
		return nil
	}
	return errors.New(*l.wrong.Load())
}

// restConfig is for clients whose transport is the link.
func (l *link) restConfig() *rest.Config {
	// The hub's own priority and fairness is the limit, as at home.
	return &rest.Config{Host: placeholder, QPS: -1}
}
