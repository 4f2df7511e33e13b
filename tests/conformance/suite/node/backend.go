package main

import (
	"crypto/tls"
	"net"
	"sync"
)

// backend is what one Pod serves: our own servers that answer in the
// shapes the suite decodes, each bound to the pod's own address.
type backend struct {
	ip        string
	env       map[string]string
	tls       func() (*tls.Config, error) // nil: no TLS port
	log       func(format string, args ...any)
	retryLock sync.Mutex
	retries   map[string]int
	closers   []func()
}

type identity struct {
	Namespace string `json:"namespace"`
	Ingress   string `json:"ingress"`
	Service   string `json:"service"`
	Pod       string `json:"pod"`
}

func (b *backend) identity() identity {
	return identity{b.env["NAMESPACE"], b.env["INGRESS_NAME"], b.env["SERVICE_NAME"], b.env["POD_NAME"]}
}

func (b *backend) port(env, otherwise string) string {
	if p := b.env[env]; p != "" {
		return p
	}
	return otherwise
}

func (b *backend) stop() {
	for _, c := range b.closers {
		c()
	}
}

// start opens all ports; on an error nothing stays open.
func (b *backend) start() (err error) {
	defer func() {
		if err != nil {
			b.stop()
		}
	}()
	b.retries = map[string]int{}
	switch {
	case b.env["GRPC_ECHO_SERVER"] != "":
		return b.startGRPC()
	case b.env["TCP_ECHO_SERVER"] != "", b.env["UDP_ECHO_SERVER"] != "":
		return nil // of profiles that are not ours
	}
	return b.startHTTP()
}

func (b *backend) listen(port string) (net.Listener, error) {
	l, err := net.Listen("tcp4", net.JoinHostPort(b.ip, port))
	if err == nil {
		b.closers = append(b.closers, func() { l.Close() })
	}
	return l, err
}

// tlsListener reads the certificate anew for every handshake, since the suite
// replaces Secrets when it is run twice against one cluster.
func (b *backend) tlsListener(port string, alpn ...string) (net.Listener, *tls.Config, error) {
	l, err := b.listen(port)
	if err != nil {
		return nil, nil, err
	}
	return l, &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: alpn,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := b.tls()
			if c != nil {
				c.NextProtos = alpn
			}
			return c, err
		},
	}, nil
}
