package main

import (
	"bytes"
	"io"
	"os"
	"sync"
	"time"
)

// Most lines of a pod's log that the API server can ask for.
const longestLog = 200_000

// podLog keeps what a container writes, by lines with their times, and copies it to a file.
type podLog struct {
	mu    sync.Mutex
	file  *os.File
	lines []line
	rest  []byte
}

type line struct {
	at   time.Time
	text []byte
}

func (l *podLog) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_, _ = l.file.Write(text) // the copy is for people
	}
	l.rest = append(l.rest, text...)
	for {
		before, after, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(text), nil
		}
		l.lines = append(l.lines, line{time.Now(), bytes.Clone(before)})
		l.rest = bytes.Clone(after)
		if len(l.lines) > longestLog {
			l.lines = l.lines[len(l.lines)-longestLog/2:]
		}
	}
}

// since writes the lines from a time on.
func (l *podLog) since(at time.Time, to io.Writer) error {
	l.mu.Lock()
	lines := l.lines
	l.mu.Unlock()
	for _, line := range lines {
		if line.at.Before(at) {
			continue
		}
		if _, err := to.Write(append(line.text, '\n')); err != nil {
			return err
		}
	}
	return nil
}
