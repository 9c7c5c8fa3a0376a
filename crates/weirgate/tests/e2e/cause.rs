//! The causes that tests expect, each with its status: the only place to update when a name changes.
//!
//! The catalogue itself is `weir-upstream/src/error.rs`; a filter's causes are in its file.

/// A status, and the cause in `x-weir-cause`.
pub(crate) type Cause = (u16, &'static str);

// The client's fault.
pub(crate) const AMBIGUOUS_PATH: Cause = (400, "ambiguous_path");
pub(crate) const BAD_CHUNK: Cause = (400, "bad_chunk");
pub(crate) const BAD_FRAMING: Cause = (400, "bad_framing");
pub(crate) const BAD_HEAD: Cause = (400, "bad_head");
pub(crate) const BAD_HOST: Cause = (400, "bad_host");
pub(crate) const BAD_PATH: Cause = (400, "bad_path");
pub(crate) const BAD_TARGET: Cause = (400, "bad_target");
pub(crate) const BODY_NOT_JSON: Cause = (400, "body_not_json");
pub(crate) const BODY_TIMEOUT: Cause = (408, "body_timeout");
pub(crate) const BODY_TOO_LARGE: Cause = (413, "body_too_large");
pub(crate) const HEADER_TOO_LARGE: Cause = (431, "header_too_large");
pub(crate) const HEAD_TIMEOUT: Cause = (408, "head_timeout");
pub(crate) const METHOD_REFUSED: Cause = (501, "method_refused");
pub(crate) const MISDIRECTED: Cause = (421, "misdirected");
pub(crate) const PLAIN_HTTP: Cause = (400, "plain_http");
pub(crate) const TARGET_TOO_LONG: Cause = (414, "target_too_long");
pub(crate) const TOO_MANY_HEADERS: Cause = (431, "too_many_headers");
pub(crate) const VERSION: Cause = (505, "version");

// Decided by the config.
pub(crate) const CONNECT_MALFORMED: Cause = (400, "connect_malformed");
pub(crate) const CONNECT_NO_METHOD: Cause = (404, "connect_no_method");
pub(crate) const CONNECT_WRONG_METHOD: Cause = (405, "connect_wrong_method");
pub(crate) const CONNECT_WRONG_TYPE: Cause = (415, "connect_wrong_type");
pub(crate) const GRPC_NOT_DESCRIBED: Cause = (503, "grpc_not_described");
pub(crate) const GRPC_NO_METHOD: Cause = (404, "grpc_no_method");
pub(crate) const GRPC_REQUEST_MALFORMED: Cause = (400, "grpc_request_malformed");
pub(crate) const GRPC_RESPONSE_MALFORMED: Cause = (502, "grpc_response_malformed");
pub(crate) const GRPC_WEB_MALFORMED: Cause = (400, "grpc_web_malformed");
pub(crate) const GRPC_RULE_REFUSED: Cause = (501, "grpc_rule_refused");
pub(crate) const GRPC_WRONG_METHOD: Cause = (405, "grpc_wrong_method");
pub(crate) const FASTCGI_NO_SCRIPT: Cause = (404, "fastcgi_no_script");
pub(crate) const FILES_BY_HEADER: Cause = (502, "files_by_header");
pub(crate) const FILES_HIDDEN: Cause = (404, "files_hidden");
pub(crate) const FILES_METHOD: Cause = (405, "files_method");
pub(crate) const EXT_PROC_UNAVAILABLE: Cause = (503, "ext_proc_unavailable");
pub(crate) const RESPONSE_TOO_LARGE: Cause = (502, "response_too_large");
pub(crate) const FILES_MISSING: Cause = (404, "files_missing");
pub(crate) const FILES_NO_INDEX: Cause = (404, "files_no_index");
pub(crate) const FILES_OUTSIDE: Cause = (404, "files_outside");
pub(crate) const FILES_RANGE: Cause = (416, "files_range");
pub(crate) const BUFFER_DISK: Cause = (503, "buffer_disk");
pub(crate) const BUFFER_MEMORY: Cause = (503, "buffer_memory");
pub(crate) const CIRCUIT_OPEN: Cause = (503, "circuit_open");
pub(crate) const CLIENT_CONCURRENCY: Cause = (429, "client_concurrency");
pub(crate) const CLIENT_CONNECTIONS: Cause = (429, "client_connections");
pub(crate) const CONCURRENCY_LIMIT: Cause = (503, "concurrency_limit");
pub(crate) const CONCURRENCY_TIMEOUT: Cause = (503, "concurrency_timeout");
pub(crate) const CONNECTION_LIMIT: Cause = (503, "connection_limit");
pub(crate) const ACL_DENIED: Cause = (403, "acl_denied");
pub(crate) const CONSUMERS_UNAVAILABLE: Cause = (503, "consumers_unavailable");
pub(crate) const CONSUMER_ADDRESS: Cause = (403, "consumer_address");
pub(crate) const IP_DENIED: Cause = (403, "ip_denied");
pub(crate) const BASIC_BUSY: Cause = (503, "basic_busy");
pub(crate) const BASIC_MISSING: Cause = (401, "basic_missing");
pub(crate) const BASIC_WRONG: Cause = (401, "basic_wrong");
pub(crate) const CERTIFICATE_MISSING: Cause = (401, "certificate_missing");
pub(crate) const CORS_METHOD: Cause = (403, "cors_method");
pub(crate) const CORS_ORIGIN: Cause = (403, "cors_origin");
pub(crate) const FAULT_ABORT: Cause = (503, "fault_abort");
pub(crate) const FAULT_MALFORMED: Cause = (400, "fault_malformed");
pub(crate) const KEY_MISSING: Cause = (401, "key_missing");
pub(crate) const KEY_TWICE: Cause = (400, "key_twice");
pub(crate) const KEY_UNKNOWN: Cause = (401, "key_unknown");
pub(crate) const LOGIN_NEEDED: Cause = (401, "login_needed");
pub(crate) const SESSIONS_UNAVAILABLE: Cause = (503, "sessions_unavailable");
pub(crate) const MAINTENANCE: Cause = (503, "maintenance");
pub(crate) const NOT_CACHED: Cause = (504, "not_cached");
pub(crate) const NO_ROUTE: Cause = (404, "no_route");
pub(crate) const OUT_OF_DESCRIPTORS: Cause = (503, "out_of_descriptors");
pub(crate) const PENDING_LIMIT: Cause = (503, "pending_limit");
pub(crate) const PENDING_TIMEOUT: Cause = (503, "pending_timeout");
pub(crate) const QUOTA_EXCEEDED: Cause = (429, "quota_exceeded");
pub(crate) const RATE_LIMITED: Cause = (429, "rate_limited");
pub(crate) const DIGEST_WRONG: Cause = (400, "digest_wrong");
pub(crate) const SIGNATURE_MISSING: Cause = (401, "signature_missing");
pub(crate) const SIGNATURE_REPLAYED: Cause = (401, "signature_replayed");
pub(crate) const SIGNATURE_UNKNOWN: Cause = (401, "signature_unknown");
pub(crate) const SIGNATURE_WRONG: Cause = (401, "signature_wrong");
pub(crate) const STORE_UNAVAILABLE: Cause = (503, "store_unavailable");
pub(crate) const TOKEN_CLAIMS: Cause = (403, "token_claims");
pub(crate) const TOKEN_EXPIRED: Cause = (401, "token_expired");
pub(crate) const TOKEN_KEY: Cause = (401, "token_key");
pub(crate) const TOKEN_KEYS: Cause = (503, "token_keys");
pub(crate) const TOKEN_MISSING: Cause = (401, "token_missing");
pub(crate) const TOKEN_SIGNATURE: Cause = (401, "token_signature");
pub(crate) const TRANSFORM_MALFORMED: Cause = (400, "transform_malformed");
pub(crate) const TRANSFORM_MEDIA_TYPE: Cause = (415, "transform_media_type");
pub(crate) const VALIDATE_MEDIA_TYPE: Cause = (415, "validate_media_type");
pub(crate) const VALIDATE_NO_METHOD: Cause = (405, "validate_no_method");
pub(crate) const VALIDATE_NO_PATH: Cause = (404, "validate_no_path");
pub(crate) const VALIDATE_REFUSED: Cause = (400, "validate_refused");

// The upstream's fault.
pub(crate) const BAD_RESPONSE: Cause = (502, "bad_response");
pub(crate) const CONNECT_FAILED: Cause = (502, "connect_failed");
pub(crate) const CONNECT_REFUSED: Cause = (502, "connect_refused");
pub(crate) const CONNECT_TIMEOUT: Cause = (504, "connect_timeout");
pub(crate) const EXCHANGE_TIMEOUT: Cause = (504, "exchange_timeout");
pub(crate) const NO_ENDPOINT: Cause = (503, "no_endpoint");
pub(crate) const NO_HEALTHY_ENDPOINT: Cause = (503, "no_healthy_endpoint");
pub(crate) const REPLACE_LIMIT: Cause = (502, "replace_limit");
pub(crate) const RESPONSE_TIMEOUT: Cause = (504, "response_timeout");
pub(crate) const UPGRADE_REFUSED: Cause = (502, "upgrade_refused");
pub(crate) const UPSTREAM_ERROR: Cause = (502, "upstream_error");
pub(crate) const UPSTREAM_CLOSED: Cause = (502, "upstream_closed");
pub(crate) const UPSTREAM_OVERLOADED: Cause = (503, "upstream_overloaded");
pub(crate) const UPSTREAM_RESET: Cause = (502, "upstream_reset");
pub(crate) const UPSTREAM_TLS: Cause = (502, "upstream_tls");
pub(crate) const VALIDATE_ANSWER: Cause = (502, "validate_answer");
