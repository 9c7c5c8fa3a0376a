package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/go-kratos/kratos/v2/registry"
)

// registrar writes instances to etcd under the keys and in the JSON of kratos's own registry for etcd (contrib/registry/etcd), over etcd's JSON
// gateway: that package is a module without releases.
type registrar struct {
	etcd   string
	cancel context.CancelFunc
}

const namespace, ttl = "/microservices", 15 * time.Second

func (r *registrar) ask(path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	response, err := http.Post(r.etcd+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answers %s", response.Status)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

func encoded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func key(service *registry.ServiceInstance) string {
	return fmt.Sprintf("%s/%s/%s", namespace, service.Name, service.ID)
}

func (r *registrar) once(service *registry.ServiceInstance) (string, error) {
	var lease struct{ ID string }
	if err := r.ask("/v3/lease/grant", map[string]string{"TTL": fmt.Sprint(int(ttl.Seconds()))}, &lease); err != nil {
		return "", err
	}
	value, err := json.Marshal(service)
	if err != nil {
		return "", err
	}
	put := map[string]string{"key": encoded(key(service)), "value": encoded(string(value)), "lease": lease.ID}
	return lease.ID, r.ask("/v3/kv/put", put, &struct{}{})
}

// Register registers once and keeps the lease alive; where that fails, it registers again.
func (r *registrar) Register(_ context.Context, service *registry.ServiceInstance) error {
	lease, err := r.once(service)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(ttl / 3):
			}
			var alive struct{ Result struct{ TTL string } }
			if err := r.ask("/v3/lease/keepalive", map[string]string{"ID": lease}, &alive); err != nil || alive.Result.TTL == "" {
				if again, err := r.once(service); err == nil {
					lease = again
				}
			}
		}
	}()
	return nil
}

// Deregister takes the instance out.
func (r *registrar) Deregister(_ context.Context, service *registry.ServiceInstance) error {
	r.cancel()
	return r.ask("/v3/kv/deleterange", map[string]string{"key": encoded(key(service))}, &struct{}{})
}
