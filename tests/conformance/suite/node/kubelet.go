package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// podLog keeps the newest lines that a container has written.
type podLog struct {
	mu    sync.Mutex
	lines []logLine
}

type logLine struct {
	at   time.Time
	text string
}

const keepLines = 50000

func (l *podLog) printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) >= keepLines {
		l.lines = append(l.lines[:0:0], l.lines[keepLines/2:]...)
	}
	l.lines = append(l.lines, logLine{time.Now(), fmt.Sprintf(format, args...)})
}

func (l *podLog) since(t time.Time, tail int) []logLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := 0
	for i < len(l.lines) && l.lines[i].at.Before(t) {
		i++
	}
	out := l.lines[i:]
	if tail >= 0 && len(out) > tail {
		out = out[len(out)-tail:]
	}
	return append([]logLine(nil), out...)
}

// serveLogs is the one piece of the kubelet's HTTPS interface that the API
// server needs for `GET .../pods/NAME/log`.
func serveLogs(addr string, find func(ns, pod string) *podLog) (io.Closer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(addr)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(72 * time.Hour), IPAddresses: []net.IP{net.ParseIP(host)}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	l, err := tls.Listen("tcp", addr, &tls.Config{MinVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err != nil {
		return nil, err
	}
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		if len(parts) != 4 || parts[0] != "containerLogs" {
			http.NotFound(w, r)
			return
		}
		pl := find(parts[1], parts[2])
		if pl == nil {
			http.Error(w, "no such pod here", http.StatusNotFound)
			return
		}
		q := r.URL.Query()
		var from time.Time
		if t, err := time.Parse(time.RFC3339Nano, q.Get("sinceTime")); err == nil {
			from = t
		} else if n, err := strconv.Atoi(q.Get("sinceSeconds")); err == nil {
			from = time.Now().Add(-time.Duration(n) * time.Second)
		}
		tail, err := strconv.Atoi(q.Get("tailLines"))
		if err != nil {
			tail = -1
		}
		out := bufio.NewWriter(w)
		defer out.Flush()
		for _, line := range pl.since(from, tail) {
			if q.Get("timestamps") == "true" {
				fmt.Fprint(out, line.at.UTC().Format(time.RFC3339Nano), " ")
			}
			fmt.Fprintln(out, line.text)
		}
	}))
	return l, nil
}
