// Asks a server over HTTP/3 with quic-go: requests one after another and many at once, a large answer, a large body,
// a second connection that resumes the session, and 0-RTT where the server allows it.
//
// usage: quicgo PORT CERTIFICATE SHA256-OF-BIG
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

var failed bool

func verdict(err error, text string) {
	if err != nil {
		failed = true
		fmt.Printf("FAIL %s: %v\n", text, err)
	} else {
		fmt.Println("PASS " + text)
	}
}

func ask(client *http.Client, method, url string, body []byte) ([]byte, error) {
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err == nil && (answer.StatusCode != 200 || answer.Proto != "HTTP/3.0") {
		err = fmt.Errorf("%s by %s", answer.Status, answer.Proto)
	}
	return got, err
}

func hello(client *http.Client, base string) error {
	got, err := ask(client, "GET", base+"/hello", nil)
	if err == nil && string(got) != "hello\n" {
		err = fmt.Errorf("got %q", got)
	}
	return err
}

func main() {
	base, roots := "https://localhost:"+os.Args[1], x509.NewCertPool()
	pem, err := os.ReadFile(os.Args[2])
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		panic("no certificate")
	}
	var connections []*quic.Conn
	var lock sync.Mutex
	dial := func(ctx context.Context, address string, t *tls.Config, q *quic.Config) (*quic.Conn, error) {
		c, err := quic.DialAddrEarly(ctx, address, t, q)
		if err == nil {
			lock.Lock()
			connections = append(connections, c)
			lock.Unlock()
		}
		return c, err
	}
	cache := tls.NewLRUClientSessionCache(8)
	transport := func() *http3.Transport {
		return &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ClientSessionCache: cache}, Dial: dial}
	}
	first := transport()
	client := &http.Client{Transport: first, Timeout: 30 * time.Second}

	verdict(hello(client, base), "a request")
	errs := make(chan error, 300)
	for range 300 {
		go func() { errs <- hello(client, base) }()
	}
	for range 300 {
		if e := <-errs; e != nil {
			err = e
		}
	}
	verdict(err, "300 requests at once")
	got, err := ask(client, "GET", base+"/files/big", nil)
	if sum := sha256.Sum256(got); err == nil && hex.EncodeToString(sum[:]) != os.Args[3] {
		err = fmt.Errorf("%d other bytes", len(got))
	}
	verdict(err, "an answer of 10 MB")
	body := bytes.Repeat([]byte("0123456789abcdef"), 5<<16)
	sum := sha256.Sum256(body)
	got, err = ask(client, "POST", base+"/sum", body)
	if want := fmt.Sprintf("%d %x", len(body), sum); err == nil && string(got) != want {
		err = fmt.Errorf("got %q", got)
	}
	verdict(err, "a body of 5 MB")
	first.Close()

	second := transport()
	client.Transport = second
	err = hello(client, base)
	state := connections[len(connections)-1].ConnectionState()
	if err == nil && !state.TLS.DidResume {
		err = fmt.Errorf("a full handshake")
	}
	verdict(err, "resumption")
	second.Close()
	if failed {
		os.Exit(1)
	}
}
