package main

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/websocket"
)

type tlsFacts struct {
	Version    string   `json:"version"`
	Peers      []string `json:"peerCertificates,omitempty"`
	ServerName string   `json:"serverName"`
	ALPN       string   `json:"negotiatedProtocol,omitempty"`
	Cipher     string   `json:"cipherSuite"`
}

type httpFacts struct {
	Path    string              `json:"path"`
	Host    string              `json:"host"`
	Method  string              `json:"method"`
	Proto   string              `json:"proto"`
	Headers map[string][]string `json:"headers"`
	Port    string              `json:"httpPort"`
	identity
	TLS *tlsFacts `json:"tls,omitempty"`
}

func (b *backend) startHTTP() error {
	serve := func(l net.Listener, h http.Handler, p *http.Protocols) {
		s := &http.Server{Handler: h, Protocols: p, ReadHeaderTimeout: 10 * time.Second}
		b.closers = append(b.closers, func() { s.Close() })
		go s.Serve(l)
	}
	plain, err := b.listen(b.port("HTTP_PORT", "3000"))
	if err != nil {
		return err
	}
	h2c, err := b.listen(b.port("H2C_PORT", "3001"))
	if err != nil {
		return err
	}
	var both http.Protocols
	both.SetHTTP1(true)
	both.SetUnencryptedHTTP2(true)
	serve(plain, http.HandlerFunc(b.serveHTTP), nil)
	serve(h2c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 && r.Header.Get("Upgrade") != "h2c" {
			http.Error(w, "Expected h2c request", http.StatusBadRequest)
			return
		}
		b.reply(w, r)
	}), &both)
	if b.tls == nil {
		return nil
	}
	l, conf, err := b.tlsListener(b.port("HTTPS_PORT", "8443"), "h2", "http/1.1")
	if err != nil {
		return err
	}
	s := &http.Server{Handler: http.HandlerFunc(b.serveHTTP), TLSConfig: conf, ReadHeaderTimeout: 10 * time.Second}
	b.closers = append(b.closers, func() { s.Close() })
	go s.ServeTLS(l, "", "")
	return nil
}

func (b *backend) serveHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.ReplaceAll(r.URL.Path, "//", "/")
	switch {
	case path == "/health":
		io.WriteString(w, "OK")
	case path == "/ws":
		websocket.Handler(func(c *websocket.Conn) {
			b.log("websocket opened by %s", c.Request().RemoteAddr)
			io.Copy(c, c)
		}).ServeHTTP(w, r)
	case strings.HasPrefix(path, "/status/"):
		code, err := strconv.Atoi(strings.TrimPrefix(path, "/status/"))
		if err != nil || code < 100 || code > 999 {
			code = http.StatusBadRequest
		}
		w.WriteHeader(code)
	case strings.HasPrefix(path, "/retry/"):
		b.flaky(w, r)
	default:
		b.reply(w, r)
	}
}

// flaky fails the first `succeedAfter` requests that carry the same uuid.
func (b *backend) flaky(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	left, err := strconv.Atoi(q.Get("succeedAfter"))
	if err != nil || q.Get("uuid") == "" {
		http.Error(w, "uuid and succeedAfter are required", http.StatusBadRequest)
		return
	}
	b.retryLock.Lock()
	defer b.retryLock.Unlock()
	if b.retries[q.Get("uuid")] >= left {
		b.reply(w, r)
		return
	}
	b.retries[q.Get("uuid")]++
	b.log("failing on purpose: %s", r.RequestURI)
	if err := pause(q, "delayRetry"); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if code, err := strconv.Atoi(q.Get("responseCode")); err == nil {
		w.WriteHeader(code)
		return
	}
	h, ok := w.(http.Hijacker) // HTTP/1 only: cut the connection with a reset
	if !ok {
		panic(http.ErrAbortHandler)
	}
	if c, _, err := h.Hijack(); err == nil {
		if t, ok := c.(*net.TCPConn); ok {
			t.SetLinger(0)
		}
		c.Close()
	}
}

func pause(q url.Values, key string) error {
	if q.Get(key) == "" {
		return nil
	}
	d, err := time.ParseDuration(q.Get(key))
	if err == nil {
		time.Sleep(d)
	}
	return err
}

func (b *backend) reply(w http.ResponseWriter, r *http.Request) {
	// The mirror tests look for exactly this line in the pod's log.
	b.log("Echoing back request made to %s to client (%s)", r.RequestURI, r.RemoteAddr)
	if err := pause(r.URL.Query(), "delay"); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	body, err := json.MarshalIndent(httpFacts{
		Path: r.RequestURI, Host: r.Host, Method: r.Method, Proto: r.Proto, Headers: r.Header,
		Port: b.port("HTTP_PORT", "3000"), identity: b.identity(), TLS: factsOf(r.TLS),
	}, "", " ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	for _, wish := range r.Header.Values("X-Echo-Set-Header") {
		for pair := range strings.SplitSeq(wish, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(pair), ":")
			if name == "" {
				continue
			}
			if old := h[name]; len(old) > 0 { // not Add: the case of the name is kept
				h[name] = []string{old[0] + "," + strings.TrimSpace(value)}
			} else {
				h[name] = []string{value}
			}
		}
	}
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.Write(body)
}

func factsOf(s *tls.ConnectionState) *tlsFacts {
	if s == nil {
		return nil
	}
	f := &tlsFacts{
		Version:    strings.Replace(tls.VersionName(s.Version), "TLS ", "TLSv", 1),
		ServerName: s.ServerName, ALPN: s.NegotiatedProtocol, Cipher: tls.CipherSuiteName(s.CipherSuite),
	}
	for _, c := range s.PeerCertificates {
		f.Peers = append(f.Peers, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})))
	}
	return f
}
