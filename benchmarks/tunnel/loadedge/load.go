package main

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

const uploadPartBytes = 64 << 10 // a common size of large frames

// fillingTime is how long downloads run before requests are sent beside them.
const fillingTime = 3 * time.Second

const goodMeta = `{"src":"origin"}`

// Tally collects the results of a load.
type Tally struct {
	mu        sync.Mutex
	began     time.Time
	last      time.Time
	latencies []time.Duration
	failed    int
	failure   string // the first one
	running   sync.WaitGroup
}

// Report is the reply to a load command.
type Report struct {
	Requests int     `json:"requests"`
	Failed   int     `json:"failed"`
	Failure  string  `json:"failure"`
	WallS    float64 `json:"wall_s"`
	P50Ms    float64 `json:"p50_ms"`
	P99Ms    float64 `json:"p99_ms"`
	P999Ms   float64 `json:"p999_ms"`
}

// Report waits for the requests that are still running.
func (t *Tally) Report() Report {
	t.running.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Sort(t.latencies)
	return Report{
		Requests: len(t.latencies), Failed: t.failed, Failure: t.failure, WallS: t.last.Sub(t.began).Seconds(),
		P50Ms: t.quantileMs(0.5), P99Ms: t.quantileMs(0.99), P999Ms: t.quantileMs(0.999),
	}
}

func (t *Tally) quantileMs(share float64) float64 {
	if len(t.latencies) == 0 {
		return 0
	}
	place := min(len(t.latencies)-1, int(share*float64(len(t.latencies))))
	return float64(t.latencies[place]) / float64(time.Millisecond)
}

// ended counts a stream; `want` is the size of its response.
func (t *Tally) ended(stream *Stream, isComplete bool, want int64) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = now
	isGood := stream.status == "200" && stream.meta == goodMeta
	if !isComplete || !isGood || stream.gotBytes != want {
		t.failed++
		if t.failure == "" {
			t.failure = fmt.Sprintf("status %q from %q, %d bytes of %d, complete: %t",
				stream.status, stream.meta, stream.gotBytes, want, isComplete)
		}
		return
	}
	t.latencies = append(t.latencies, now.Sub(stream.began))
}

// closedLoop keeps InFlight requests in flight, spread over the connections; each response triggers the next request.
func closedLoop(connections []*Connection, command Command) *Tally {
	tally := &Tally{began: time.Now()}
	end := tally.began.Add(seconds(command.DurationS))
	for place, c := range connections {
		heads := NewHeads(command, c.number)
		var next func()
		onEnd := func(stream *Stream, isComplete bool) {
			tally.ended(stream, isComplete, command.BodyBytes)
			if isComplete && time.Now().Before(end) {
				next()
			}
			tally.running.Done()
		}
		next = func() {
			tally.running.Add(1)
			c.Open(&Stream{began: time.Now(), onEnd: onEnd}, heads.Next(), true)
		}
		share := command.InFlight / len(connections)
		if place < command.InFlight%len(connections) {
			share++
		}
		c.mu.Lock()
		for range share {
			if !c.isClosed {
				next()
			}
		}
		c.Flush()
		c.mu.Unlock()
	}
	return tally
}

// openLoop sends Rate requests per second, evenly spaced, over the connections in turn, whatever their outcome. It
// sleeps in a thread of its own by the kernel's clock, since the runtime's timers fire up to a millisecond late.
func openLoop(connections []*Connection, command Command) *Tally {
	tally := &Tally{began: time.Now()}
	heads := NewHeads(command, 0)
	onEnd := func(stream *Stream, isComplete bool) {
		tally.ended(stream, isComplete, command.BodyBytes)
		tally.running.Done()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	count := int(float64(command.Rate) * command.DurationS)
	for n := range count {
		due := tally.began.Add(time.Duration(n) * time.Second / time.Duration(command.Rate))
		if wait := time.Until(due); wait > 0 {
			pause := syscall.NsecToTimespec(int64(wait))
			_ = syscall.Nanosleep(&pause, nil) // if woken early, it sends early
		}
		c := connections[n%len(connections)]
		c.mu.Lock()
		if !c.isClosed {
			tally.running.Add(1)
			c.Open(&Stream{began: time.Now(), onEnd: onEnd}, heads.Next(), true)
			c.Flush()
		} else {
			tally.failed++
		}
		c.mu.Unlock()
	}
	return tally
}

// oneDownload fetches BodyBytes on each of InFlight streams of one connection.
func oneDownload(connections []*Connection, command Command) *Tally {
	tally := &Tally{began: time.Now()}
	c := connections[0]
	heads := NewHeads(command, 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	for range max(1, command.InFlight) {
		tally.running.Add(1)
		onEnd := func(stream *Stream, isComplete bool) {
			tally.ended(stream, isComplete, command.BodyBytes)
			tally.running.Done()
		}
		c.Open(&Stream{began: time.Now(), onEnd: onEnd}, heads.Next(), true)
	}
	c.Flush()
	return tally
}

// oneUpload sends BodyBytes on each of InFlight streams of one connection, to a backend that responds without a body.
func oneUpload(connections []*Connection, command Command) *Tally {
	tally := &Tally{began: time.Now()}
	c := connections[0]
	heads := NewHeads(command, 0)
	for range max(1, command.InFlight) {
		tally.running.Add(1)
		onEnd := func(stream *Stream, isComplete bool) {
			tally.ended(stream, isComplete, 0)
			tally.running.Done()
		}
		stream := &Stream{began: time.Now(), onEnd: onEnd}
		fields := append(slices.Clone(heads.Next()), field("content-length", fmt.Sprint(command.BodyBytes)))
		fields[0] = field(":method", "POST")
		c.mu.Lock()
		c.Open(stream, fields, false)
		c.Flush()
		c.mu.Unlock()
		go upload(c, stream, command.BodyBytes)
	}
	return tally
}

func upload(c *Connection, stream *Stream, size int64) {
	part := make([]byte, uploadPartBytes)
	for sent := int64(0); sent < size; sent += int64(len(part)) {
		part = part[:min(int64(len(part)), size-sent)]
		if !c.Send(stream, part, sent+int64(len(part)) == size) {
			return
		}
	}
}

// besideDownloads is openLoop on one connection that reads LineRate bytes per second and carries InFlight downloads.
func besideDownloads(connections []*Connection, command Command) *Tally {
	c := connections[0]
	c.Narrow(command.LineRate)
	bulk := command
	bulk.Path = command.BulkPath
	heads := NewHeads(bulk, 1)
	c.mu.Lock()
	for range command.InFlight {
		c.Open(&Stream{began: time.Now(), onEnd: func(*Stream, bool) {}}, heads.Next(), true)
	}
	c.Flush()
	c.mu.Unlock()
	time.Sleep(fillingTime)
	tally := openLoop(connections[:1], command)
	tally.running.Wait()
	c.Cancel()
	c.Narrow(0)
	return tally
}
