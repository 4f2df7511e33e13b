package main

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// Edge holds the registered connections and carries out commands.
type Edge struct {
	mu          sync.Mutex
	changed     *sync.Cond
	connections []*Connection // registered ones, in registration order
	count       int
}

// Command is one line of standard input. Op decides which fields apply.
type Command struct {
	Op         string  `json:"op"`
	Registered int     `json:"registered"`
	TimeoutS   float64 `json:"timeout_s"`
	InFlight   int     `json:"in_flight"`
	Rate       int     `json:"rate"`
	DurationS  float64 `json:"duration_s"`
	Mix        string  `json:"mix"`
	Host       string  `json:"host"`
	Path       string  `json:"path"`
	BodyBytes  int64   `json:"body_bytes"` // of each response, or of each upload
	BulkPath   string  `json:"bulk_path"`
	LineRate   int64   `json:"line_rate"` // bytes per second
}

func NewEdge() *Edge {
	edge := &Edge{}
	edge.changed = sync.NewCond(&edge.mu)
	return edge
}

// Serve handles one connector until its connection ends.
func (e *Edge) Serve(conn net.Conn) {
	e.mu.Lock()
	e.count++
	number := e.count
	e.mu.Unlock()
	connection := NewConnection(conn, number, e.onRegistered)
	connection.Serve()
	e.mu.Lock()
	defer e.mu.Unlock()
	for place, other := range e.connections {
		if other == connection {
			e.connections = append(e.connections[:place:place], e.connections[place+1:]...)
			break
		}
	}
	e.changed.Broadcast()
}

func (e *Edge) onRegistered(connection *Connection) {
	e.mu.Lock()
	defer e.mu.Unlock()
	connection.RegisteredAt = time.Now()
	e.connections = append(e.connections, connection)
	e.changed.Broadcast()
}

// Do carries out a command and returns the reply.
func (e *Edge) Do(command Command) (any, error) {
	switch command.Op {
	case "wait":
		return e.wait(command)
	case "drop":
		return e.drop()
	case "closed":
		return e.load(command, closedLoop)
	case "open":
		return e.load(command, openLoop)
	case "down":
		return e.load(command, oneDownload)
	case "up":
		return e.load(command, oneUpload)
	case "beside":
		return e.load(command, besideDownloads)
	}
	return nil, fmt.Errorf("unknown op %q", command.Op)
}

func (e *Edge) wait(command Command) (any, error) {
	timeout := time.AfterFunc(seconds(command.TimeoutS), e.changed.Broadcast)
	defer timeout.Stop()
	end := time.Now().Add(seconds(command.TimeoutS))
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.connections) < command.Registered {
		if !time.Now().Before(end) {
			return nil, fmt.Errorf("%d connections registered within %g s, want %d",
				len(e.connections), command.TimeoutS, command.Registered)
		}
		e.changed.Wait()
	}
	var at []float64
	for _, connection := range e.connections {
		at = append(at, unix(connection.RegisteredAt))
	}
	return map[string]any{"registered_at_s": at}, nil
}

// drop breaks every connection, as a crash would, and waits until all of them are gone.
func (e *Edge) drop() (any, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	dropped := append([]*Connection(nil), e.connections...)
	at := time.Now()
	for _, connection := range dropped {
		connection.Close()
	}
	for _, connection := range dropped {
		for e.has(connection) {
			e.changed.Wait()
		}
	}
	return map[string]any{"at_s": unix(at)}, nil
}

func (e *Edge) has(connection *Connection) bool {
	for _, other := range e.connections {
		if other == connection {
			return true
		}
	}
	return false
}

func (e *Edge) load(command Command, run func([]*Connection, Command) *Tally) (any, error) {
	e.mu.Lock()
	connections := append([]*Connection(nil), e.connections...)
	e.mu.Unlock()
	if len(connections) == 0 {
		return nil, fmt.Errorf("no connection is registered")
	}
	return run(connections, command).Report(), nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func unix(at time.Time) float64 { return float64(at.UnixNano()) / 1e9 }
