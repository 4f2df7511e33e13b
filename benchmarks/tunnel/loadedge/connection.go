package main

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"
)

// The client side of HTTP/2 (RFC 9113), reduced to what a load needs. It is our own code rather than a library, since
// edge, connector and backend share the machine: what the edge saves is left for the programs that are measured.

const (
	frameData         = 0
	frameHeaders      = 1
	frameRSTStream    = 3
	frameSettings     = 4
	framePing         = 6
	frameGoaway       = 7
	frameWindowUpdate = 8
	frameContinuation = 9

	flagEndStream  = 1
	flagAck        = 1
	flagEndHeaders = 4
	flagPadded     = 8

	settingHeaderTableSize   = 1
	settingInitialWindowSize = 4
	settingMaxFrameSize      = 5

	frameHeadBytes     = 9
	initialWindowBytes = 65_535
	maxFrameBytes      = 16_384

	streamWindowBytes     = 4 << 20
	connectionWindowBytes = 64 << 20

	readBytes         = 256 << 10
	narrowBufferBytes = 128 << 10

	codeCancel = 8
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Stream is one request and its response so far.
type Stream struct {
	id           uint32
	began        time.Time
	hasHead      bool
	status       string
	meta         string // who made the response, according to the connector
	gotBytes     int64
	unreleased   int64 // received, but not yet returned to the connector's window
	sendWindow   int64
	onData       func(data []byte)
	onEnd        func(stream *Stream, complete bool) // called with the connection's lock held
	hasSentEnd   bool
	isRegistered bool
}

// Connection is one registered connector. Its lock guards everything; output is written with the lock held, which is
// safe since the edge never waits for a connector that reads no more than its windows allow.
type Connection struct {
	number       int
	conn         net.Conn
	lineRate     atomic.Int64 // maximum bytes read per second; 0: no limit
	onRegistered func(*Connection)
	RegisteredAt time.Time

	mu         sync.Mutex
	windowOpen *sync.Cond
	isClosed   bool
	output     []byte
	encoder    *hpack.Encoder
	block      bytes.Buffer
	decoder    *hpack.Decoder
	decoding   *Stream
	fragment   []byte // of a head that continues in CONTINUATION frames
	fragmentOf uint32
	headEnds   bool
	streams    map[uint32]*Stream
	lastID     uint32

	sendWindow    int64
	peerWindow    int64
	peerFrame     int64
	unreleased    int64
	registration  Registration
	controlStream *Stream
}

func NewConnection(conn net.Conn, number int, onRegistered func(*Connection)) *Connection {
	c := &Connection{
		number: number, conn: conn, onRegistered: onRegistered, streams: map[uint32]*Stream{},
		sendWindow: initialWindowBytes, peerWindow: initialWindowBytes, peerFrame: maxFrameBytes,
	}
	c.windowOpen = sync.NewCond(&c.mu)
	c.encoder = hpack.NewEncoder(&c.block)
	c.decoder = hpack.NewDecoder(4096, c.onField)
	return c
}

// Serve reads until the connection ends.
func (c *Connection) Serve() {
	c.mu.Lock()
	c.output = append(c.output, preface...)
	c.output = appendFrameHead(c.output, 6, frameSettings, 0, 0)
	c.output = binary.BigEndian.AppendUint16(c.output, settingInitialWindowSize)
	c.output = binary.BigEndian.AppendUint32(c.output, streamWindowBytes)
	c.appendWindowUpdate(0, connectionWindowBytes-initialWindowBytes)
	c.openControlStream()
	c.Flush()
	c.mu.Unlock()
	err := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isClosed && err != nil && !errors.Is(err, io.EOF) {
		log.Printf("connection %d: %v", c.number, err)
	}
	c.isClosed = true
	c.conn.Close()
	for id, stream := range c.streams {
		delete(c.streams, id)
		stream.status = fmt.Sprintf("%s, connection ended: %v", stream.status, err)
		stream.onEnd(stream, false)
	}
	c.windowOpen.Broadcast()
}

// Close breaks the connection.
func (c *Connection) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isClosed = true
	c.conn.Close()
}

func (c *Connection) openControlStream() {
	fields := []hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"},
		{Name: ":authority", Value: "edge.example"}, {Name: ":path", Value: "/"},
		{Name: "cf-cloudflared-proxy-connection-upgrade", Value: "control-stream"},
	}
	stream := &Stream{onEnd: func(*Stream, bool) {}}
	stream.onData = func(data []byte) {
		answers := c.registration.Receive(data)
		if len(answers) > 0 {
			c.output = appendFrameHead(c.output, len(answers), frameData, 0, stream.id)
			c.output = append(c.output, answers...)
		}
		if c.registration.IsRegistered && !stream.isRegistered {
			stream.isRegistered = true
			go c.onRegistered(c)
		}
	}
	c.controlStream = stream
	c.Open(stream, fields, false)
}

// Open sends a request head. The caller holds the lock and flushes.
func (c *Connection) Open(stream *Stream, fields []hpack.HeaderField, endStream bool) {
	c.lastID += 2
	if c.lastID == 2 {
		c.lastID = 1
	}
	stream.id, stream.sendWindow, stream.hasSentEnd = c.lastID, c.peerWindow, endStream
	c.streams[stream.id] = stream
	c.block.Reset()
	for _, field := range fields {
		c.encoder.WriteField(field) // a buffer takes everything
	}
	flags := byte(flagEndHeaders)
	if endStream {
		flags |= flagEndStream
	}
	c.output = appendFrameHead(c.output, c.block.Len(), frameHeaders, flags, stream.id)
	c.output = append(c.output, c.block.Bytes()...)
}

// Send waits for the windows and sends body bytes; it returns false if the connection or the stream has ended.
func (c *Connection) Send(stream *Stream, data []byte, isLast bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(data) > 0 {
		size := min(int64(len(data)), c.sendWindow, stream.sendWindow, c.peerFrame)
		if c.isClosed || c.streams[stream.id] != stream {
			return false
		}
		if size <= 0 {
			c.Flush()
			c.windowOpen.Wait()
			continue
		}
		flags := byte(0)
		if isLast && size == int64(len(data)) {
			flags, stream.hasSentEnd = flagEndStream, true
		}
		c.output = appendFrameHead(c.output, int(size), frameData, flags, stream.id)
		c.output = append(c.output, data[:size]...)
		c.sendWindow -= size
		stream.sendWindow -= size
		data = data[size:]
	}
	c.Flush()
	return true
}

// Flush writes what is queued. The caller holds the lock.
func (c *Connection) Flush() {
	if len(c.output) == 0 || c.isClosed {
		return
	}
	if _, err := c.conn.Write(c.output); err != nil {
		c.conn.Close() // the reader reports it
	}
	c.output = c.output[:0]
}

// Narrow limits the connection to rate bytes per second, and the kernel's receive buffer; 0 lifts the rate limit.
func (c *Connection) Narrow(rate int64) {
	if secure, isTLS := c.conn.(*tls.Conn); isTLS && rate > 0 {
		if raw, isTCP := secure.NetConn().(*net.TCPConn); isTCP {
			_ = raw.SetReadBuffer(narrowBufferBytes) // best effort
		}
	}
	c.lineRate.Store(rate)
}

// Cancel cancels all running requests without calling onEnd.
func (c *Connection) Cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, stream := range c.streams {
		if stream != c.controlStream {
			delete(c.streams, id)
			c.output = appendFrameHead(c.output, 4, frameRSTStream, 0, id)
			c.output = binary.BigEndian.AppendUint32(c.output, codeCancel)
		}
	}
	c.Flush()
}

func (c *Connection) read() error {
	buffer := make([]byte, readBytes)
	filled := 0
	for {
		size, err := c.conn.Read(buffer[filled:])
		if err != nil {
			return err
		}
		if rate := c.lineRate.Load(); rate > 0 {
			time.Sleep(time.Duration(size) * time.Second / time.Duration(rate))
		}
		filled += size
		used, err := c.receive(buffer[:filled])
		if err != nil {
			return err
		}
		filled = copy(buffer, buffer[used:filled])
	}
}

// receive handles the complete frames in data and returns their size in bytes.
func (c *Connection) receive(data []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := 0
	for len(data)-used >= frameHeadBytes {
		head := data[used : used+frameHeadBytes]
		length := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		if length > maxFrameBytes {
			return 0, fmt.Errorf("frame of %d bytes, want at most %d", length, maxFrameBytes)
		}
		end := used + frameHeadBytes + length
		if len(data) < end {
			break
		}
		id := binary.BigEndian.Uint32(head[5:]) &^ (1 << 31)
		if err := c.onFrame(head[3], head[4], id, data[used+frameHeadBytes:end]); err != nil {
			return 0, err
		}
		used = end
	}
	c.Flush()
	return used, nil
}

func (c *Connection) onFrame(kind, flags byte, id uint32, payload []byte) error {
	switch kind {
	case frameData:
		return c.onData(flags, id, payload)
	case frameHeaders, frameContinuation:
		return c.onHeaders(kind, flags, id, payload)
	case frameRSTStream:
		if stream := c.streams[id]; stream != nil {
			stream.status = fmt.Sprintf("%s, reset with code %x", stream.status, payload)
			c.end(stream, false)
		}
	case frameSettings:
		return c.onSettings(flags, payload)
	case framePing:
		if flags&flagAck == 0 {
			c.output = appendFrameHead(c.output, len(payload), framePing, flagAck, 0)
			c.output = append(c.output, payload...)
		}
	case frameGoaway:
		if binary.BigEndian.Uint32(payload[4:]) != 0 {
			return fmt.Errorf("GOAWAY: %q", payload)
		}
	case frameWindowUpdate:
		c.onWindowUpdate(id, int64(binary.BigEndian.Uint32(payload)))
	}
	return nil
}

func (c *Connection) onData(flags byte, id uint32, payload []byte) error {
	if flags&flagPadded != 0 {
		return fmt.Errorf("padded DATA, which no connector sends")
	}
	size := int64(len(payload))
	c.unreleased += size
	if c.unreleased >= connectionWindowBytes/2 {
		c.appendWindowUpdate(0, c.unreleased)
		c.unreleased = 0
	}
	stream := c.streams[id]
	if stream == nil {
		return nil
	}
	stream.gotBytes += size
	stream.unreleased += size
	isLast := flags&flagEndStream != 0
	if stream.unreleased >= streamWindowBytes/2 && !isLast {
		c.appendWindowUpdate(id, stream.unreleased)
		stream.unreleased = 0
	}
	if stream.onData != nil {
		stream.onData(payload)
	}
	if isLast {
		c.end(stream, true)
	}
	return nil
}

func (c *Connection) onHeaders(kind, flags byte, id uint32, payload []byte) error {
	if kind == frameHeaders {
		c.headEnds = flags&flagEndStream != 0
		c.fragmentOf = id
		c.fragment = c.fragment[:0]
	} else if id != c.fragmentOf {
		return fmt.Errorf("CONTINUATION of stream %d within the head of stream %d", id, c.fragmentOf)
	}
	if flags&flagEndHeaders == 0 || kind == frameContinuation {
		c.fragment = append(c.fragment, payload...)
		payload = c.fragment
	}
	if flags&flagEndHeaders == 0 {
		return nil
	}
	stream := c.streams[id]
	c.decoding = stream
	if _, err := c.decoder.Write(payload); err != nil {
		return err
	}
	if err := c.decoder.Close(); err != nil {
		return err
	}
	if stream != nil {
		stream.hasHead = true
		if c.headEnds {
			c.end(stream, true)
		}
	}
	return nil
}

// onField is called for each field of a head. Every head is decoded, since skipping one would break those after it.
func (c *Connection) onField(field hpack.HeaderField) {
	if c.decoding == nil || c.decoding.hasHead {
		return
	}
	switch field.Name {
	case ":status":
		c.decoding.status = field.Value
	case "cf-cloudflared-response-meta":
		c.decoding.meta = field.Value
	}
}

func (c *Connection) end(stream *Stream, isComplete bool) {
	delete(c.streams, stream.id)
	if isComplete && !stream.hasSentEnd {
		// A response before the end of the request: the rest is not sent.
		c.output = appendFrameHead(c.output, 4, frameRSTStream, 0, stream.id)
		c.output = append(c.output, 0, 0, 0, 0)
	}
	stream.onEnd(stream, isComplete)
	c.windowOpen.Broadcast()
}

func (c *Connection) onSettings(flags byte, payload []byte) error {
	if flags&flagAck != 0 {
		return nil
	}
	for ; len(payload) >= 6; payload = payload[6:] {
		value := binary.BigEndian.Uint32(payload[2:])
		switch binary.BigEndian.Uint16(payload) {
		case settingHeaderTableSize:
			c.encoder.SetMaxDynamicTableSizeLimit(value)
		case settingInitialWindowSize:
			for _, stream := range c.streams {
				stream.sendWindow += int64(value) - c.peerWindow
			}
			c.peerWindow = int64(value)
		case settingMaxFrameSize:
			c.peerFrame = int64(value)
		}
	}
	c.output = appendFrameHead(c.output, 0, frameSettings, flagAck, 0)
	return nil
}

func (c *Connection) onWindowUpdate(id uint32, increment int64) {
	if id == 0 {
		c.sendWindow += increment
	} else if stream := c.streams[id]; stream != nil {
		stream.sendWindow += increment
	}
	c.windowOpen.Broadcast()
}

func (c *Connection) appendWindowUpdate(id uint32, increment int64) {
	c.output = appendFrameHead(c.output, 4, frameWindowUpdate, 0, id)
	c.output = binary.BigEndian.AppendUint32(c.output, uint32(increment))
}

func appendFrameHead(output []byte, length int, kind, flags byte, id uint32) []byte {
	output = append(output, byte(length>>16), byte(length>>8), byte(length), kind, flags)
	return binary.BigEndian.AppendUint32(output, id)
}
