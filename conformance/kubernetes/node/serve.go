package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Longest request of the API server, in bytes.
const longestReview = 4 << 20

// serve answers what the API server asks a kubelet: the logs of pods. The hook for Gateways is beside it.
func (n *node) serve() {
	mux := http.NewServeMux()
	mux.HandleFunc("/containerLogs/", func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(r.URL.Path, "/")
		if len(parts) != 5 {
			http.NotFound(w, r)
			return
		}
		log := n.logOf(parts[2], parts[3])
		if log == nil {
			http.NotFound(w, r)
			return
		}
		since, err := time.Parse(time.RFC3339, r.URL.Query().Get("sinceTime"))
		if err != nil {
			since = time.Time{} // all of it
		}
		_ = log.since(since, w) // the reader may have left
	})
	pool := &addresses{prefix: n.pool, of: map[string]string{}}
	mux.HandleFunc("/gateways", func(w http.ResponseWriter, r *http.Request) { hook(w, r, pool) })
	server := &http.Server{Addr: fmt.Sprintf("%s:%d", bridgeAddress, kubeletPort), Handler: mux}
	go func() { fmt.Println(server.ListenAndServeTLS(n.certificate, n.key)) }()
}

// addresses gives out addresses for clients, one for each name, and the same again for the same name.
type addresses struct {
	mu     sync.Mutex
	prefix string
	of     map[string]string
}

func (a *addresses) get(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of[name] == "" {
		a.of[name] = fmt.Sprintf("%s.%d", a.prefix, 1+len(a.of)%199)
	}
	return a.of[name]
}

// installHook makes the API server ask us about every Gateway, as an operator without a load balancer would give each a
// static address.
func (n *node) installHook(ctx context.Context) error {
	url := fmt.Sprintf("https://%s:%d/gateways", bridgeAddress, kubeletPort)
	none, ignore := registrationv1.SideEffectClassNone, registrationv1.Fail
	object := &registrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "addresses"},
		Webhooks: []registrationv1.MutatingWebhook{{
			Name:                    "addresses.weir.example",
			ClientConfig:            registrationv1.WebhookClientConfig{URL: &url, CABundle: n.ca},
			SideEffects:             &none,
			FailurePolicy:           &ignore,
			AdmissionReviewVersions: []string{"v1"},
			Rules: []registrationv1.RuleWithOperations{{
				Operations: []registrationv1.OperationType{registrationv1.Create, registrationv1.Update},
				Rule: registrationv1.Rule{
					APIGroups: []string{"gateway.networking.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"gateways"},
				},
			}},
		}},
	}
	hooks := n.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := hooks.Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// hook gives a Gateway without addresses one of its own.
func hook(w http.ResponseWriter, r *http.Request, pool *addresses) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(io.LimitReader(r.Body, longestReview)).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "no AdmissionReview", http.StatusBadRequest)
		return
	}
	answer := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	var gateway struct {
		Spec struct {
			Addresses []any `json:"addresses"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(review.Request.Object.Raw, &gateway); err == nil && len(gateway.Spec.Addresses) == 0 {
		address := pool.get(review.Request.Namespace + "/" + review.Request.Name)
		patch := fmt.Sprintf(
			`[{"op":"add","path":"/spec/addresses","value":[{"type":"IPAddress","value":%q}]}]`, address)
		kind := admissionv1.PatchTypeJSONPatch
		answer.Patch, answer.PatchType = []byte(patch), &kind
	}
	review.Request, review.Response = nil, answer
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the API server may have left
}
