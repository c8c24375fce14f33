// Copyright The Comity Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"

	"k8s.io/client-go/tools/portforward"

	"github.com/comity-mcs/comity/cmd/kubectl-comity/command"
)

// Forward opens a local TCP port that leads to a Pod's, through the API server,
// until ctx ends. It gives the local address.
func Forward(ctx context.Context, target *command.Target, namespace, pod string, port int) (string, error) {
	forwarder, ready, err := newForwarder(ctx, target, namespace, pod, port)
	if err == nil {
		ended := make(chan error, 1)
		go func() { ended <- forwarder.ForwardPorts() }()
		select {
		case <-ready:
		case err = <-ended:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	var ports []portforward.ForwardedPort
	if err == nil {
		ports, err = forwarder.GetPorts()
	}
	if err != nil {
		return "", target.Errorf("connect to port %d of Pod %s/%s: %w", port, namespace, pod, err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))), nil
}

func newForwarder(ctx context.Context, target *command.Target, namespace, pod string, port int) (*portforward.PortForwarder, <-chan struct{}, error) {
	url := target.Clientset.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	dialer, err := portforward.NewSPDYOverWebsocketDialer(url, target.REST)
	if err != nil {
		return nil, nil, err
	}
	ready := make(chan struct{})
	forwarder, err := portforward.NewOnAddressesWithContext(ctx, dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, ready, io.Discard, io.Discard)
	return forwarder, ready, err
}
