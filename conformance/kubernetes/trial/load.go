package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Clients, each with a connection to each listener.
	clients = 6
	// What each waits between two requests.
	pause = 10 * time.Millisecond
	// Most failures that are kept with their text.
	mostFailures = 50
)

// load sends requests until it is stopped: over HTTP and HTTPS, to several hosts.
type load struct {
	address  string
	asked    atomic.Int64
	failed   atomic.Int64
	mu       sync.Mutex
	failures []string
	done     sync.WaitGroup
}

// startLoad begins to send; ctx ends it.
func startLoad(ctx context.Context, address string) *load {
	l := &load{address: address}
	for number := range clients {
		l.done.Add(1)
		go func() {
			defer l.done.Done()
			l.send(ctx, number)
		}()
	}
	return l
}

func (l *load) send(ctx context.Context, number int) {
	client := steadyClient(l.address)
	urls := []string{
		"http://one.steady.example/", "https://one.steady.example/a", "http://two.steady.example/b",
		"https://two.steady.example/c",
	}
	for at := number; ctx.Err() == nil; at++ {
		l.asked.Add(1)
		if err := post(ctx, client, urls[at%len(urls)]); err != nil {
			l.failed.Add(1)
			l.mu.Lock()
			if len(l.failures) < mostFailures {
				l.failures = append(l.failures, fmt.Sprintf("%s %v", time.Now().Format("15:04:05.000"), err))
			}
			l.mu.Unlock()
		}
		time.Sleep(pause)
	}
}

// take returns how many requests were sent and how many failed since the last time.
func (l *load) take() (asked, failed int64, why []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	why, l.failures = l.failures, nil
	return l.asked.Swap(0), l.failed.Swap(0), why
}

// steadyClient connects to the address whatever the host is, and trusts every certificate.
func steadyClient(address string) *http.Client {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, target string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(target)
			if err != nil {
				return nil, err
			}
			return dialer.DialContext(ctx, network, net.JoinHostPort(address, port))
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
}

// post sends a request that the client does not repeat by itself, unless the server closed the connection before it.
func post(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("a"))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "text/plain")
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d", url, answer.StatusCode)
	}
	return nil
}
