//! Directives whose verdict needs no translation: what Weir does by itself, and what has no place in it.

use super::read::Directive;
use crate::ledger::{Ledger, Verdict};

/// Whether a directive does something in Weir.
enum Known {
    /// Weir does so by itself.
    ByItself(&'static str),
    /// It has no place in Weir.
    LeftOut(&'static str),
    /// Weir has nothing like it; with the nearest thing.
    Refused(&'static str, &'static str),
    /// It is read where it has an effect, and has none otherwise.
    Used,
}

use Known::{ByItself, LeftOut, Refused, Used};

const BUFFERS: &str = "Weir streams bodies in buffers of its own size";
const KERNEL: &str = "a setting of nginx's own input and output";
const TLS: &str = "Weir's TLS has safe ciphers and settings only, and cannot be made weaker";
const LOGS: &str = "Weir's own log goes to stderr, or where `log` says";
const PROCESS: &str = "a setting of nginx's processes; Weir's package has a systemd unit";

/// The verdicts by name, sorted.
static KNOWN: &[(&str, Known)] = &[
    ("absolute_redirect", LeftOut("Weir's redirects to a path have no host; browsers add it")),
    ("accept_mutex", LeftOut(PROCESS)),
    ("aio", ByItself("Weir reads files without blocking")),
    ("auth_delay", ByItself("passwords are checked at a bounded rate")),
    ("autoindex_exact_size", LeftOut("a detail of listings")),
    ("autoindex_localtime", LeftOut("a detail of listings")),
    ("charset", LeftOut("Weir sends text files as UTF-8")),
    ("client_body_buffer_size", ByItself(BUFFERS)),
    ("client_body_in_single_buffer", ByItself(BUFFERS)),
    ("client_body_temp_path", LeftOut(BUFFERS)),
    ("client_header_buffer_size", ByItself("heads may have 32 KiB: `limits.header_bytes`")),
    ("connection_pool_size", LeftOut(KERNEL)),
    ("daemon", LeftOut(PROCESS)),
    ("default_type", Used),
    ("directio", LeftOut(KERNEL)),
    ("env", LeftOut(PROCESS)),
    ("error_log", LeftOut(LOGS)),
    ("etag", ByItself("files have an ETag")),
    ("fastcgi_buffer_size", ByItself(BUFFERS)),
    ("fastcgi_buffering", ByItself(BUFFERS)),
    ("fastcgi_buffers", ByItself(BUFFERS)),
    ("fastcgi_busy_buffers_size", ByItself(BUFFERS)),
    ("fastcgi_keep_conn", LeftOut("`keepalive` of the upstream")),
    ("fastcgi_max_temp_file_size", LeftOut(BUFFERS)),
    ("fastcgi_request_buffering", ByItself(BUFFERS)),
    ("fastcgi_temp_file_write_size", LeftOut(BUFFERS)),
    ("gunzip", LeftOut("Weir passes coded answers on as they are")),
    ("gzip_buffers", ByItself(BUFFERS)),
    ("gzip_disable", ByItself("browsers that cannot take gzip do not ask for it")),
    ("gzip_http_version", ByItself("clients of HTTP/1.0 do not ask for gzip")),
    ("gzip_proxied", ByItself("Weir compresses by what the client accepts and Cache-Control allows")),
    ("gzip_vary", ByItself("`compress` sets Vary")),
    ("http2_max_concurrent_streams", ByItself("Weir has a limit of its own")),
    ("http2_max_field_size", ByItself("`limits.header_bytes`")),
    ("http2_max_header_size", ByItself("`limits.header_bytes`")),
    ("http2_push_preload", LeftOut("browsers have no server push any more")),
    ("http2_recv_buffer_size", LeftOut(KERNEL)),
    ("if_modified_since", ByItself("conditional requests for files are answered")),
    ("ignore_invalid_headers", ByItself("Weir refuses malformed fields")),
    ("keepalive_disable", LeftOut("concerns browsers of 2010")),
    ("keepalive_requests", LeftOut("Weir closes no connection for its age in requests")),
    ("large_client_header_buffers", ByItself("heads may have 32 KiB: `limits.header_bytes`")),
    ("lingering_close", ByItself("Weir lingers where RFC 9112 §9.6 asks for it")),
    ("lingering_time", LeftOut(KERNEL)),
    ("lingering_timeout", LeftOut(KERNEL)),
    ("load_module", LeftOut("what the module's directives say is judged with them")),
    ("lock_file", LeftOut(PROCESS)),
    ("error_page", Used),
    ("log_format", Used),
    ("log_not_found", LeftOut(LOGS)),
    ("log_subrequest", LeftOut(LOGS)),
    ("map_hash_bucket_size", LeftOut(KERNEL)),
    ("map_hash_max_size", LeftOut(KERNEL)),
    ("master_process", LeftOut(PROCESS)),
    ("max_ranges", ByItself("Weir has a limit of its own")),
    ("merge_slashes", Used),
    ("msie_padding", LeftOut("concerns browsers of 2010")),
    ("multi_accept", LeftOut(KERNEL)),
    ("open_file_cache", ByItself("Weir keeps files open for a second")),
    ("open_file_cache_errors", LeftOut(KERNEL)),
    ("open_file_cache_min_uses", LeftOut(KERNEL)),
    ("open_file_cache_valid", LeftOut(KERNEL)),
    ("open_log_file_cache", LeftOut(LOGS)),
    ("output_buffers", LeftOut(KERNEL)),
    ("pcre_jit", ByItself("regular expressions are compiled")),
    ("pid", LeftOut(PROCESS)),
    ("port_in_redirect", LeftOut("Weir's redirects to a path have no host and no port")),
    ("postpone_output", LeftOut(KERNEL)),
    ("proxy_buffer_size", ByItself(BUFFERS)),
    ("proxy_buffering", ByItself("Weir streams answers; the filter `buffer` reads ahead of slow clients")),
    ("proxy_buffers", ByItself(BUFFERS)),
    ("proxy_busy_buffers_size", ByItself(BUFFERS)),
    ("proxy_headers_hash_bucket_size", LeftOut(KERNEL)),
    ("proxy_headers_hash_max_size", LeftOut(KERNEL)),
    ("proxy_http_version", ByItself("Weir speaks HTTP/1.1 to upstreams")),
    ("proxy_ignore_client_abort", LeftOut("`client_gone: finish` of the upstream")),
    ("proxy_max_temp_file_size", LeftOut(BUFFERS)),
    (
        "proxy_request_buffering",
        ByItself("Weir streams bodies; the filter `buffer` holds them until they are whole"),
    ),
    ("proxy_socket_keepalive", ByItself("connections to upstreams are watched")),
    ("proxy_ssl_ciphers", LeftOut(TLS)),
    ("proxy_ssl_protocols", LeftOut(TLS)),
    ("proxy_ssl_session_reuse", ByItself("TLS sessions are resumed")),
    ("proxy_ssl_verify_depth", LeftOut(TLS)),
    ("proxy_temp_file_write_size", LeftOut(BUFFERS)),
    ("proxy_temp_path", LeftOut(BUFFERS)),
    ("quic_gso", LeftOut(KERNEL)),
    ("quic_retry", LeftOut(KERNEL)),
    ("read_ahead", LeftOut(KERNEL)),
    ("recursive_error_pages", LeftOut("Weir's error pages are texts and files")),
    ("request_pool_size", LeftOut(KERNEL)),
    ("reset_timedout_connection", ByItself("Weir resets clients that do not read")),
    (
        "resolver",
        ByItself("names of endpoints are resolved by the system's servers, again when their time is over"),
    ),
    ("resolver_timeout", ByItself("names of endpoints are resolved in the background")),
    ("send_lowat", LeftOut(KERNEL)),
    ("send_timeout", ByItself("a client that reads nothing for 60 s is disconnected")),
    ("sendfile", ByItself("Weir sends files from the kernel's cache")),
    ("sendfile_max_chunk", LeftOut(KERNEL)),
    ("server_name_in_redirect", LeftOut("Weir's redirects to a path have no host")),
    ("server_names_hash_bucket_size", LeftOut(KERNEL)),
    ("server_names_hash_max_size", LeftOut(KERNEL)),
    ("server_tokens", ByItself("Weir sends no version, and no Server field of its own")),
    ("ssl_buffer_size", LeftOut(KERNEL)),
    ("ssl_ciphers", Used),
    ("ssl_conf_command", LeftOut(TLS)),
    ("ssl_dhparam", LeftOut(TLS)),
    ("ssl_early_data", LeftOut("Weir takes no early data, which can be replayed")),
    ("ssl_ecdh_curve", Used),
    ("ssl_prefer_server_ciphers", ByItself(TLS)),
    ("ssl_session_cache", ByItself("TLS sessions are resumed")),
    ("ssl_session_tickets", Used),
    ("ssl_session_timeout", ByItself("TLS sessions are resumed")),
    ("ssl_stapling", LeftOut("browsers and authorities give OCSP up")),
    ("ssl_stapling_verify", LeftOut("browsers and authorities give OCSP up")),
    ("ssl_trusted_certificate", LeftOut("used for OCSP, which browsers and authorities give up")),
    ("tcp_nodelay", ByItself("always on")),
    ("tcp_nopush", ByItself("Weir writes head and body together")),
    ("thread_pool", LeftOut(PROCESS)),
    ("timer_resolution", LeftOut(PROCESS)),
    ("types", ByItself("Weir knows the media types of files")),
    ("types_hash_bucket_size", LeftOut(KERNEL)),
    ("types_hash_max_size", LeftOut(KERNEL)),
    (
        "underscores_in_headers",
        LeftOut("Weir drops only fields that a server could take for one that Weir sets"),
    ),
    ("use", LeftOut(KERNEL)),
    ("user", LeftOut(PROCESS)),
    ("uwsgi_buffering", ByItself(BUFFERS)),
    ("variables_hash_bucket_size", LeftOut(KERNEL)),
    ("variables_hash_max_size", LeftOut(KERNEL)),
    ("worker_aio_requests", LeftOut(PROCESS)),
    ("worker_connections", ByItself("up to 65536 clients: `limits.connections`")),
    ("worker_cpu_affinity", LeftOut(PROCESS)),
    ("worker_priority", LeftOut(PROCESS)),
    ("worker_processes", ByItself("one thread per core: `workers`")),
    ("worker_rlimit_core", LeftOut(PROCESS)),
    ("worker_rlimit_nofile", ByItself("Weir raises its own limit of open files")),
    ("worker_shutdown_timeout", ByItself("`shutdown.drain`, 30 s")),
    // What follows is no longer read anywhere if it has no effect in its place.
    ("add_header", Used),
    ("alias", Used),
    ("autoindex", Used),
    ("client_body_timeout", Used),
    ("client_header_timeout", Used),
    ("client_max_body_size", Used),
    ("expires", Used),
    ("fastcgi_connect_timeout", Used),
    ("fastcgi_hide_header", Used),
    ("fastcgi_index", Used),
    ("fastcgi_param", Used),
    ("fastcgi_read_timeout", Used),
    ("fastcgi_send_timeout", Used),
    ("fastcgi_split_path_info", Used),
    ("fastcgi_intercept_errors", Used),
    ("geo", Used),
    ("gzip", Used),
    ("gzip_comp_level", Used),
    ("gzip_min_length", Used),
    ("gzip_static", Used),
    ("gzip_types", Used),
    ("index", Used),
    ("keepalive_timeout", Used),
    ("limit_conn_log_level", LeftOut(LOGS)),
    ("limit_conn_status", Used),
    ("limit_conn_zone", Used),
    ("limit_req_log_level", LeftOut(LOGS)),
    ("limit_req_status", Used),
    ("limit_req_zone", Used),
    ("map", Used),
    ("proxy_cache_path", Used),
    ("proxy_cache_key", Used),
    ("proxy_cache_lock", ByItself("identical requests at one time become one")),
    ("proxy_cache_lock_timeout", LeftOut("identical requests wait as long as the upstream's timeouts allow")),
    ("proxy_cache_revalidate", ByItself("stale answers are revalidated")),
    ("proxy_cache_background_update", ByItself("`stale_while_revalidate`")),
    ("proxy_cache_min_uses", LeftOut("an answer is stored at its first use")),
    ("proxy_cache_use_stale", Used),
    ("proxy_cache_valid", Used),
    ("proxy_connect_timeout", Used),
    ("proxy_hide_header", Used),
    ("proxy_ignore_headers", Used),
    ("proxy_intercept_errors", Used),
    ("proxy_next_upstream", Used),
    ("proxy_next_upstream_timeout", Used),
    ("proxy_next_upstream_tries", Used),
    ("proxy_pass_header", ByItself("Weir hides no field of an upstream")),
    ("proxy_read_timeout", Used),
    ("proxy_redirect", Used),
    ("proxy_send_timeout", Used),
    ("proxy_set_header", Used),
    ("proxy_ssl_name", Used),
    ("proxy_ssl_server_name", Used),
    ("proxy_ssl_trusted_certificate", Used),
    ("proxy_ssl_verify", Used),
    ("root", Used),
    ("set", Used),
    ("ssl_certificate", Used),
    ("ssl_certificate_key", Used),
    ("ssl_protocols", Used),
    ("upstream", Used),
    // What Weir has nothing for, with the nearest thing.
    ("addition_types", Refused("Weir adds no texts to answers", "the filter replace")),
    ("auth_jwt", Refused("keys and claims must be told anew", "the filter jwt")),
    ("dav_methods", Refused("Weir writes no files", "an upstream with WebDAV")),
    ("image_filter", Refused("Weir changes no pictures", "an upstream that does")),
    ("js_content", Refused("Weir runs no JavaScript", "expressions, or the filter ext_proc")),
    ("js_import", Refused("Weir runs no JavaScript", "expressions, or the filter ext_proc")),
    ("js_set", Refused("Weir runs no JavaScript", "expressions, or the filter ext_proc")),
    ("limit_rate", Refused("Weir limits no client's speed", "the filter rate_limit counts requests")),
    ("limit_rate_after", Refused("Weir limits no client's speed", "the filter rate_limit counts requests")),
    ("memcached_pass", Refused("Weir does not speak memcached", "the filter cache")),
    ("mp4", Refused("Weir seeks in no videos", "files serves ranges")),
    ("perl", Refused("Weir runs no Perl", "expressions, or the filter ext_proc")),
    ("scgi_pass", Refused("Weir does not speak SCGI", "protocol: fastcgi, or HTTP")),
    ("slice", Refused("Weir asks for whole answers", "the filter cache")),
    ("ssi", Refused("Weir has no server-side includes", "an upstream that has")),
    (
        "split_clients",
        Refused("Weir splits by chance, not by a hash", "upstream: { a: 95, b: 5 } of a route"),
    ),
    (
        "stub_status",
        Refused("Weir's figures are elsewhere", "GET /metrics of the admin listener, weir status"),
    ),
    (
        "uwsgi_pass",
        Refused("Weir does not speak uwsgi", "run the application with HTTP, such as uwsgi --http-socket"),
    ),
    ("userid", Refused("Weir sets no cookie for visitors", "headers: { response: { add: { set-cookie } } }")),
    ("xslt_stylesheet", Refused("Weir changes no XML", "an upstream that does")),
];

/// Gives a verdict to all directives that have none and need no translation.
pub(super) fn judge_rest(directives: &[Directive], ledger: &mut Ledger) {
    for directive in directives {
        if !ledger.is_judged(directive.piece) {
            one(directive, ledger);
        }
        let inner = directive.block.as_deref().unwrap_or_default();
        match &*directive.name {
            "types" | "map" | "geo" | "split_clients" | "charset_map" => lines(directive, inner, ledger),
            _ => judge_rest(inner, ledger),
        }
    }
}

/// The lines of a table are values: they share the fate of the table.
fn lines(table: &Directive, lines: &[Directive], ledger: &mut Ledger) {
    let of_table = ledger.verdict(table.piece);
    for line in lines {
        match of_table {
            _ if ledger.is_judged(line.piece) => {}
            Some(Verdict::Refused) => ledger.refused(line.piece, "its table is refused", ""),
            Some(Verdict::LeftOut) => ledger.left_out(line.piece, "nothing uses the table"),
            _ => ledger.by_itself(line.piece, "a line of the table"),
        }
    }
}

fn one(directive: &Directive, ledger: &mut Ledger) {
    let (piece, name) = (directive.piece, &*directive.name);
    if name.contains("_by_lua") || name.starts_with("lua_") {
        return ledger.refused(piece, "Weir runs no Lua", "expressions, or the filter ext_proc");
    }
    match KNOWN.iter().find(|(known, _)| *known == name).map(|(_, known)| known) {
        Some(ByItself(why)) => ledger.by_itself(piece, *why),
        Some(LeftOut(why)) => ledger.left_out(piece, *why),
        Some(Refused(why, nearest)) => ledger.refused(piece, *why, *nearest),
        Some(Used) => {
            ledger.left_out(piece, "it has no effect here");
            // The lines of its table.
            for line in directive.block.iter().flatten() {
                if !ledger.is_judged(line.piece) {
                    ledger.left_out(line.piece, "nothing uses the table");
                }
            }
        }
        None => {}
    }
}
