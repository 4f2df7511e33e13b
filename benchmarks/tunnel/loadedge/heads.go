package main

import (
	"fmt"
	"net/netip"

	"golang.org/x/net/http2/hpack"
)

// Heads makes request heads of sixteen fields, as an edge sends them. In the repeating mix, one field is new in each
// request, as if one browser sent them all. In the new mix, half of the fields are, as if no client came twice.
type Heads struct {
	isNew  bool
	host   string
	path   string
	seed   uint64
	fields []hpack.HeaderField
}

func NewHeads(command Command, number int) *Heads {
	h := &Heads{isNew: command.Mix == "new", host: command.Host, path: command.Path, seed: uint64(number) << 40}
	h.fields = h.make(0x5eed)
	return h
}

// Next returns a head that is valid until the next call.
func (h *Heads) Next() []hpack.HeaderField {
	h.seed++
	if h.isNew {
		h.fields = h.make(mixed(h.seed))
	} else {
		h.fields[len(h.fields)-1].Value = ray(mixed(h.seed))
	}
	return h.fields
}

func (h *Heads) make(seed uint64) []hpack.HeaderField {
	token := func() string {
		seed = mixed(seed)
		return fmt.Sprintf("%016x", seed)
	}
	path := h.path
	if h.isNew {
		path += "?id=" + token()
	}
	client := netip.AddrFrom4([4]byte{203, byte(seed >> 16), byte(seed >> 8), byte(seed)}).String()
	return []hpack.HeaderField{
		{Name: ":method", Value: "GET"},
		{Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: h.host},
		{Name: ":path", Value: path},
		{Name: "accept", Value: "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"},
		{Name: "accept-encoding", Value: "gzip, br"},
		{Name: "x-forwarded-proto", Value: "https"},
		{Name: "cf-visitor", Value: `{"scheme":"https"}`},
		{Name: "cf-ipcountry", Value: "DE"},
		{Name: "user-agent", Value: "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0 " + token()},
		{Name: "cookie", Value: "session=" + token() + token()},
		{Name: "referer", Value: "https://" + h.host + "/from/" + token()},
		{Name: "cf-connecting-ip", Value: client},
		{Name: "x-forwarded-for", Value: client},
		{Name: "if-none-match", Value: `"` + token() + `"`},
		{Name: "cf-ray", Value: ray(mixed(seed))},
	}
}

func ray(seed uint64) string { return fmt.Sprintf("%016x-FRA", seed) }

// mixed is splitmix64: each number looks unlike all before.
func mixed(seed uint64) uint64 {
	seed += 0x9e3779b97f4a7c15
	seed = (seed ^ seed>>30) * 0xbf58476d1ce4e5b9
	seed = (seed ^ seed>>27) * 0x94d049bb133111eb
	return seed ^ seed>>31
}

func field(name, value string) hpack.HeaderField { return hpack.HeaderField{Name: name, Value: value} }
