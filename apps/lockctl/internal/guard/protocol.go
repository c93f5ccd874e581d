package guard

import (
	"encoding/json"
	"io"
	"syscall"
	"time"
)

// order goes from the program that holds the lock to the guardian.
type order struct {
	// Answer is the number of the question that Left answers; 0 means none.
	Answer uint64 `json:"answer,omitempty"`
	// Left is how long the lock is still surely held, in nanoseconds.
	Left time.Duration `json:"left,omitempty"`
	// Signal is to be passed to the group; 0 means none.
	Signal syscall.Signal `json:"signal,omitempty"`
	// Stop says that the lock is lost.
	Stop bool `json:"stop,omitempty"`
}

// report goes from the guardian to the program.
type report struct {
	// Ask is the number of a question for the time left; 0 means none.
	Ask uint64 `json:"ask,omitempty"`
	// Group is the process group of the command that has just started; 0 means none.
	Group int `json:"group,omitempty"`
	// Ended is the last report.
	Ended *Result `json:"ended,omitempty"`
}

// receive decodes messages from r until it ends, into a channel that it then closes.
// It stops when the other side of the pipe is closed and the messages are taken.
func receive[M any](r io.Reader) <-chan M {
	messages := make(chan M)
	go func() {
		defer close(messages)
		decoder := json.NewDecoder(r)
		for {
			var m M
			if decoder.Decode(&m) != nil {
				return
			}
			messages <- m
		}
	}()
	return messages
}
