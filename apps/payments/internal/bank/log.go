package bank

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Status is what became of a transfer.
type Status string

// What becomes of transfers.
const (
	// Executed: the money has moved.
	Executed Status = "executed"
	// Declined: no money has moved.
	Declined Status = "declined"
)

// Transfer is a line of the log.
type Transfer struct {
	// ID is the rail's name for it.
	ID string `json:"id"`
	// Reference is the caller's; it need not be unique.
	Reference string `json:"reference"`
	// Amount is in minor units.
	Amount      int64     `json:"amount"`
	Destination string    `json:"destination"`
	Status      Status    `json:"status"`
	At          time.Time `json:"at"`
}

// Log is a file of transfers that is only ever appended to. It is safe for concurrent use, in one process.
type Log struct {
	mu        sync.Mutex
	file      *os.File
	size      int64
	transfers []Transfer
	// broken is why nothing can be appended any more.
	broken error
}

// OpenLog reads the file, which it makes, with its folder, if it is not there. A last line that was never ended is cut off: its
// writer died before it could have answered. Any other line that cannot be read is an error, and so is a file that another
// process has open.
func OpenLog(path string) (*Log, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make folder for log of transfers: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fmt.Errorf("open log of transfers: %w", err)
	}
	l := &Log{file: file, transfers: []Transfer{}}
	// Two writers would cut off each other's lines.
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("claim log of transfers %s: %w", path, err), file.Close())
	}
	if err := l.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("read log of transfers %s: %w", path, err), file.Close())
	}
	return l, nil
}

func (l *Log) read() error {
	data, err := io.ReadAll(l.file)
	if err != nil {
		return err //nolint:wrapcheck // OpenLog says what was tried
	}
	ended := data[:bytes.LastIndexByte(data, '\n')+1]
	for line := range bytes.Lines(ended) {
		var t Transfer
		if err := json.Unmarshal(line, &t); err != nil {
			return fmt.Errorf("line %d: %w", len(l.transfers)+1, err)
		}
		l.transfers = append(l.transfers, t)
	}
	l.size = int64(len(ended))
	return l.truncate()
}

// truncate makes the file end where its last good line does.
func (l *Log) truncate() error {
	if err := l.file.Truncate(l.size); err != nil {
		return err //nolint:wrapcheck // callers say what was tried
	}
	_, err := l.file.Seek(l.size, io.SeekStart)
	return err //nolint:wrapcheck // as above
}

// Append names a transfer, writes it, and returns when it is on disk. After an error it is not in the log; where not even that
// is sure, nothing is appended any more.
func (l *Log) Append(t Transfer) (Transfer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return Transfer{}, l.broken
	}
	t.ID = fmt.Sprintf("t-%d", len(l.transfers)+1)
	line, err := json.Marshal(t)
	if err != nil {
		return Transfer{}, fmt.Errorf("encode transfer: %w", err)
	}
	line = append(line, '\n')
	_, err = l.file.Write(line)
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		err = fmt.Errorf("append to log of transfers: %w", err)
		if undo := l.truncate(); undo != nil {
			l.broken = errors.Join(err, undo)
		}
		return Transfer{}, err
	}
	l.size += int64(len(line))
	l.transfers = append(l.transfers, t)
	return t, nil
}

// All returns all transfers, oldest first.
func (l *Log) All() []Transfer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.transfers)
}

// Of returns the transfers of a reference, oldest first.
func (l *Log) Of(reference string) []Transfer {
	return slices.DeleteFunc(l.All(), func(t Transfer) bool { return t.Reference != reference })
}

// Close closes the file.
func (l *Log) Close() error {
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("close log of transfers: %w", err)
	}
	return nil
}
