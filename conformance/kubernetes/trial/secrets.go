package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http/httptrace"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// pair makes a self-signed certificate and its key, both PEM.
func pair(host string) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, nil, err
	}
	form := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}
	bytes, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	block := func(kind string, bytes []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", bytes), nil
}

// writeSecret gives a Secret of the namespace `steady` a new certificate.
func (t *trial) writeSecret(ctx context.Context, name, host string) error {
	cert, key, err := pair(host)
	if err != nil {
		return err
	}
	return t.putSecret(ctx, name, map[string][]byte{"tls.crt": cert, "tls.key": key})
}

func (t *trial) putSecret(ctx context.Context, name string, data map[string][]byte) error {
	secrets := t.kube.CoreV1().Secrets("steady")
	object := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "steady"}, Type: corev1.SecretTypeTLS, Data: data,
	}
	_, err := secrets.Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(ctx, object, metav1.UpdateOptions{})
	}
	return err
}

// brokenSecret makes the certificate of a listener unusable in several ways. The listener's status says so, and its
// neighbors at the same port, which are under load, still serve.
func brokenSecret(ctx context.Context, t *trial) error {
	cert, _, err := pair("*.broken.example")
	if err != nil {
		return err
	}
	_, key, err := pair("*.broken.example")
	if err != nil {
		return err
	}
	for name, data := range map[string]map[string][]byte{
		"no certificate": {"tls.crt": []byte("nothing"), "tls.key": key},
		"an empty key":   {"tls.crt": cert, "tls.key": nil},
		"another's key":  {"tls.crt": cert, "tls.key": key},
	} {
		if err := t.putSecret(ctx, "broken", data); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := t.listenerSays(ctx, "False"); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := t.writeSecret(ctx, "broken", "*.broken.example"); err != nil {
			return err
		}
		if err := t.listenerSays(ctx, "True"); err != nil {
			return fmt.Errorf("after %s: %w", name, err)
		}
	}
	if err := t.kube.CoreV1().Secrets("steady").Delete(ctx, "broken", metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := t.listenerSays(ctx, "False"); err != nil {
		return fmt.Errorf("without the Secret: %w", err)
	}
	if err := t.writeSecret(ctx, "broken", "*.broken.example"); err != nil {
		return err
	}
	return eventually(30*time.Second, func() error {
		return post(ctx, steadyClient(t.address), "https://two.broken.example/")
	})
}

// listenerSays waits until ResolvedRefs of the listener `broken` has this status.
func (t *trial) listenerSays(ctx context.Context, wanted string) error {
	return eventually(30*time.Second, func() error {
		gateway, err := t.Dynamic.Resource(gatewayKind).Namespace("steady").Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		listeners, _, _ := unstructured.NestedSlice(gateway.Object, "status", "listeners")
		for _, listener := range listeners {
			listener, ok := listener.(map[string]any)
			if ok && listener["name"] == "broken" {
				if is := conditionOf(listener, "ResolvedRefs"); is != wanted {
					return fmt.Errorf("ResolvedRefs of the listener is %s, not %s", is, wanted)
				}
				return nil
			}
		}
		return fmt.Errorf("the listener has no status")
	})
}

// rotatedSecret gives the listener under load new certificates. New connections see the new one; those that are open
// stay open.
func rotatedSecret(ctx context.Context, t *trial) error {
	client := steadyClient(t.address)
	opened := 0
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if !got.Reused {
			opened++
		}
	}})
	for range 5 {
		before, err := t.serial()
		if err != nil {
			return err
		}
		if err := post(traced, client, "https://one.steady.example/"); err != nil {
			return err
		}
		if err := t.writeSecret(ctx, "steady", "*.steady.example"); err != nil {
			return err
		}
		err = eventually(10*time.Second, func() error {
			now, err := t.serial()
			if err == nil && now == before {
				err = fmt.Errorf("the old certificate is still served")
			}
			return err
		})
		if err != nil {
			return err
		}
		if err := post(traced, client, "https://one.steady.example/"); err != nil {
			return err
		}
	}
	if opened != 1 {
		return fmt.Errorf("a client needed %d connections: a rotation closed some", opened)
	}
	return nil
}

// serial is the serial number of the certificate that a new connection gets.
func (t *trial) serial() (string, error) {
	config := &tls.Config{InsecureSkipVerify: true, ServerName: "one.steady.example"}
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	connection, err := tls.DialWithDialer(dialer, "tcp", net.JoinHostPort(t.address, "443"), config)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	return connection.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}
