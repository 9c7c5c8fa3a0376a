package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"weir.example/kubernetes/objects"
)

// Kinds that only one of the two creates: weir.yaml has the namespace, and the chart has the Secret with the token.
var onlyOnce = []string{"Namespace", "Secret"}

// compare says where two manifests that install weir-kube differ, but for labels, annotations and the spelling of
// arguments.
func compare(left, right string) error {
	one, err := plain(left)
	if err != nil {
		return err
	}
	two, err := plain(right)
	if err != nil {
		return err
	}
	both := maps.Clone(one)
	maps.Copy(both, two)
	names := slices.Sorted(maps.Keys(both))
	var wrong []string
	for _, name := range names {
		a, b := one[name], two[name]
		if a == b {
			continue
		}
		wrong = append(wrong, name+":")
		wrong = append(wrong, lines("  - ", a, b)...)
		wrong = append(wrong, lines("  + ", b, a)...)
	}
	fmt.Printf("compare: %d objects of %s and %s\n", len(names), left, right)
	if len(wrong) > 0 {
		return fmt.Errorf("%s (-) and %s (+) differ\n%s", left, right, strings.Join(wrong, "\n"))
	}
	return nil
}

// lines are those of a text that another does not have.
func lines(sign, of, other string) []string {
	known := strings.Split(other, "\n")
	var out []string
	for _, line := range strings.Split(of, "\n") {
		if line != "" && !slices.Contains(known, line) {
			out = append(out, sign+line)
		}
	}
	return out
}

// plain reads a manifest: the YAML of each object by its kind and name, without what may differ.
func plain(file string) (map[string]string, error) {
	all, err := objects.Read(file)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, object := range all {
		kind, name := object.GetKind(), object.GetName()
		if slices.Contains(onlyOnce, kind) {
			continue
		}
		if strings.HasPrefix(kind, "ClusterRole") {
			name = "weir" // the chart adds the namespace, so that it can be installed twice
		}
		strip(object)
		content := object.UnstructuredContent()
		delete(content, "metadata")
		text, err := yaml.Marshal(content)
		if err != nil {
			return nil, err
		}
		out[kind+" "+name] = string(text)
	}
	return out, nil
}

// strip removes labels, selectors and annotations, sorts rules, and splits `--flag=value`.
func strip(object *unstructured.Unstructured) {
	content := object.Object
	if object.GetKind() == "ClusterRoleBinding" {
		_ = unstructured.SetNestedField(content, "weir", "roleRef", "name") // it has one
	}
	if object.GetKind() == "ConfigMap" {
		text, _, _ := unstructured.NestedString(content, "data", "weir.yaml")
		var settings map[string]any
		if err := yaml.Unmarshal([]byte(text), &settings); err == nil {
			_ = unstructured.SetNestedMap(content, settings, "data") // compared as values, not as text
		}
	}
	walk(content)
}

func walk(value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range []string{"labels", "annotations", "selector", "labelSelector"} {
			delete(value, key)
		}
		for _, key := range []string{"nodeSelector", "tolerations"} {
			if isEmpty(value[key]) {
				delete(value, key)
			}
		}
		if value["imagePullPolicy"] == "IfNotPresent" {
			delete(value, "imagePullPolicy") // the default
		}
		if rules, ok := value["rules"].([]any); ok {
			slices.SortFunc(rules, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		if arguments, ok := value["args"].([]any); ok {
			value["args"] = split(arguments)
		}
		for _, inner := range value {
			walk(inner)
		}
	case []any:
		for _, inner := range value {
			walk(inner)
		}
	}
}

func isEmpty(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return false
}

// split writes arguments as a sorted list of `--flag=value`, without those that say the default.
func split(arguments []any) []any {
	var out []string
	for _, argument := range arguments {
		text := fmt.Sprint(argument)
		if last := len(out) - 1; last >= 0 && !strings.HasPrefix(text, "--") {
			out[last] += "=" + text
			continue
		}
		out = append(out, text)
	}
	slices.Sort(out)
	var all []any
	for _, text := range out {
		if text != "--controller=gateway.weir.dev/controller" && text != "--lease=weir-leader" {
			all = append(all, text)
		}
	}
	return all
}
