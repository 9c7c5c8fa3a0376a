package main

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"weir.example/kubernetes/objects"
)

// forbidden is what a controller that has been taken over must not be able to do: verbs, a resource with its group,
// and a namespace (none: in any).
var forbidden = []struct{ verbs, resource, namespace string }{
	{"create update patch delete deletecollection get", "secrets", ""},
	{"create update patch delete get", "configmaps", ""},
	{"create update patch delete get", "namespaces", ""},
	{"create update patch delete get list watch", "pods", ""},
	{"create get", "pods/exec", ""},
	{"create get", "pods/attach", ""},
	{"create get", "pods/portforward", ""},
	{"get", "pods/log", ""},
	{"patch update", "pods/ephemeralcontainers", ""},
	{"create", "serviceaccounts/token", ""},
	{"create impersonate", "serviceaccounts", ""},
	{"impersonate", "users", ""},
	{"impersonate", "groups", ""},
	{"get list", "nodes", ""},
	{"get create", "nodes/proxy", ""},
	{"update deletecollection", "services", ""},
	{"get create", "services/proxy", ""},
	{"patch update", "services/status", ""},
	{"update deletecollection", "endpointslices.discovery.k8s.io", ""},
	{"create update patch delete", "deployments.apps", ""},
	{"create update patch delete", "daemonsets.apps", ""},
	{"create update patch delete bind escalate", "roles.rbac.authorization.k8s.io", ""},
	{"create update patch delete", "rolebindings.rbac.authorization.k8s.io", ""},
	{"create update patch delete bind escalate", "clusterroles.rbac.authorization.k8s.io", ""},
	{"create update patch delete", "clusterrolebindings.rbac.authorization.k8s.io", ""},
	{"create update patch delete", "customresourcedefinitions.apiextensions.k8s.io", ""},
	{"create update patch delete", "mutatingwebhookconfigurations.admissionregistration.k8s.io", ""},
	{"create update patch delete", "validatingwebhookconfigurations.admissionregistration.k8s.io", ""},
	{"create approve", "certificatesigningrequests.certificates.k8s.io", ""},
	{"create update patch delete", "gatewayclasses.gateway.networking.k8s.io", ""},
	{"create update patch delete", "gateways.gateway.networking.k8s.io", ""},
	{"create update patch delete", "httproutes.gateway.networking.k8s.io", ""},
	{"create update patch delete", "referencegrants.gateway.networking.k8s.io", ""},
	{"update", "httproutes.gateway.networking.k8s.io/status", ""},
	{"create update patch delete", "ingresses.networking.k8s.io", ""},
	{"create update patch delete", "weirfilters.gateway.weir.dev", ""},
	{"get list update patch delete", "events.events.k8s.io", ""},
	{"create get update patch delete list", "leases.coordination.k8s.io", "kube-system"},
	{"get update patch delete list", "leases.coordination.k8s.io", "weir"}, // other leases than its own
	{"patch delete", "leases.coordination.k8s.io/weir-leader", "weir"},
	{"get update patch delete", "configmaps", "weir"}, // other ConfigMaps than its record of ports
}

// The paths that have no resource.
var forbiddenPaths = []string{"/metrics", "/logs", "/debug/pprof"}

// rights asks the API server what a service account may do: everything in the roles of the manifest, and nothing of
// `forbidden`.
func rights(ctx context.Context, c *cluster, account, manifest string) error {
	namespace, name, found := strings.Cut(account, "/")
	if !found {
		return fmt.Errorf("--account %s: expected NAMESPACE/NAME", account)
	}
	var wrong []string
	asked := 0
	// check asks whether the account may do something; fault says what an answer other than expected means.
	check := func(spec authorizationv1.SubjectAccessReviewSpec, expected bool, fault string) error {
		asked++
		spec.User = "system:serviceaccount:" + namespace + ":" + name
		spec.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
		object := &authorizationv1.SubjectAccessReview{Spec: spec}
		answer, err := c.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, object, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if answer.Status.Allowed != expected {
			wrong = append(wrong, fault)
		}
		return nil
	}
	for _, one := range forbidden {
		for _, verb := range strings.Fields(one.verbs) {
			spec := authorizationv1.SubjectAccessReviewSpec{
				ResourceAttributes: attributes(verb, one.resource, one.namespace),
			}
			if err := check(spec, false, fmt.Sprintf("may %s %s in %q", verb, one.resource, one.namespace)); err != nil {
				return err
			}
		}
	}
	for _, path := range forbiddenPaths {
		spec := authorizationv1.SubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
		}
		if err := check(spec, false, "may get "+path); err != nil {
			return err
		}
	}
	granted, err := rules(manifest)
	if err != nil {
		return err
	}
	for _, one := range granted {
		spec := authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &one}
		if err := check(spec, true, fmt.Sprintf("may not %s %s.%s", one.Verb, one.Resource, one.Group)); err != nil {
			return err
		}
	}
	fmt.Printf("rights: %d questions, %d wrong answers\n", asked, len(wrong))
	if len(wrong) > 0 {
		return fmt.Errorf("%s\n%s", account, strings.Join(wrong, "\n"))
	}
	return nil
}

// attributes reads RESOURCE.GROUP/SUB. A Lease has its name in place of SUB.
func attributes(verb, written, namespace string) *authorizationv1.ResourceAttributes {
	plain, sub, _ := strings.Cut(written, "/")
	resource, group, _ := strings.Cut(plain, ".")
	out := &authorizationv1.ResourceAttributes{
		Verb: verb, Group: group, Resource: resource, Subresource: sub, Namespace: namespace,
	}
	if resource == "leases" {
		out.Subresource, out.Name = "", sub
	}
	return out
}

// rules are the questions that the roles of a manifest answer with yes.
func rules(manifest string) ([]authorizationv1.ResourceAttributes, error) {
	all, err := objects.Read(manifest)
	if err != nil {
		return nil, err
	}
	var out []authorizationv1.ResourceAttributes
	for _, object := range all {
		if object.GetKind() != "ClusterRole" && object.GetKind() != "Role" {
			continue
		}
		var role rbacv1.Role // a ClusterRole has the same rules
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
			return nil, err
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, written := range rule.Resources {
					for _, verb := range rule.Verbs {
						resource, sub, _ := strings.Cut(written, "/")
						one := authorizationv1.ResourceAttributes{
							Verb: verb, Group: group, Resource: resource, Subresource: sub, Namespace: object.GetNamespace(),
						}
						if len(rule.ResourceNames) > 0 {
							one.Name = rule.ResourceNames[0]
						}
						out = append(out, one)
					}
				}
			}
		}
	}
	return out, nil
}
