//! A small client of the Kubernetes API: lists in pages, watches, and writes.
//!
//! We use the control side's HTTP client (`fetch.rs` of weir-upstream) instead of kube-rs. A controller needs six
//! requests: list, watch, get, create, replace and patch. kube-rs brings hyper, tower, a second TLS setup and the
//! types of every Kubernetes API (k8s-openapi), which together take longer to build than this workspace's control
//! side, and had three major releases in 2026. Our client shares names, TLS and limits with what calls identity
//! providers, registries and etcd, and every buffer and wait in it has a named limit.
