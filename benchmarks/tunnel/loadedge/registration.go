package main

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
)

// The RPC of the control stream, reduced to what an edge that agrees to everything needs: Cap'n Proto messages in a
// single segment, of which only the kind and the question id are read, and fixed answers with that id filled in.

const (
	messageBytes = 8 // of the message header: number of segments minus one, words of the first
	kindAt       = 16
	questionAt   = 32 // in messages whose body follows the root struct, the layout of all connectors
	methodAt     = 36
	answerAt     = 32

	kindCall      = 2
	kindBootstrap = 8

	methodRegister = 0
)

var (
	bootstrapAnswer = words(`000000000b000000 0000000001000100 0300000000000000 0000000002000100
		0000000001000000 0000000000000000 0000000000000200 0300000000000000
		0100000017000000 0400000001000100 0100000000000000 0000000000000000`)
	registeredAnswer = words(`0000000012000000 0000000001000100 0300000000000000 0000000002000100
		0100000001000000 0000000000000000 0000000000000200 0400000000000100
		2500000007000000 0000000001000100 0100000000000000 0000000001000200
		0000000000000000 0500000082000000 0900000022000000 1111111122223333
		4444555555555555 4c49530000000000 0000000001000100`)
	emptyAnswer = words(`0000000009000000 0000000001000100 0300000000000000 0000000002000100
		0100000001000000 0000000000000000 0000000000000200 fcffffff00000000
		0100000007000000 0000000001000100`)
)

func words(text string) []byte {
	raw, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		panic(err)
	}
	return raw
}

// Registration responds to a connector's calls.
type Registration struct {
	unread       []byte
	IsRegistered bool
}

// Receive takes bytes of the control stream and returns the bytes to send back.
func (r *Registration) Receive(data []byte) []byte {
	r.unread = append(r.unread, data...)
	var answers []byte
	for len(r.unread) >= messageBytes {
		size := messageBytes + 8*int(binary.LittleEndian.Uint32(r.unread[4:]))
		if len(r.unread) < size {
			break
		}
		answers = append(answers, r.answer(r.unread[:size])...)
		r.unread = r.unread[size:]
	}
	return answers
}

func (r *Registration) answer(message []byte) []byte {
	if len(message) < questionAt+8 {
		return nil
	}
	fixed := []byte(nil)
	switch binary.LittleEndian.Uint16(message[kindAt:]) {
	case kindBootstrap:
		fixed = bootstrapAnswer
	case kindCall:
		fixed = emptyAnswer
		if binary.LittleEndian.Uint16(message[methodAt:]) == methodRegister {
			fixed = registeredAnswer
			r.IsRegistered = true
		}
	default:
		return nil
	}
	answer := append([]byte(nil), fixed...)
	copy(answer[answerAt:answerAt+4], message[questionAt:questionAt+4])
	return answer
}
