//! Renders the requests as sent on the wire: method, path, fields and body of each target.

use super::Reader;
use super::body::{multipart_type, read_at_most};
use super::odd_values::{Place, odd};
use crate::plan::Target;
use crate::schema::Call;
use crate::template::{Data, Length, Template, Text};
use crate::transport::h2::request::{Rendered, Version};
use crate::transport::is_secret;
use crate::transport::origin::{Origin, Proxy};
use crate::transport::websocket::Kind;
use crate::url::{Scheme, Url};
use std::sync::Arc;
use weir_h1::FieldName;
use weir_report::report::TargetPlan;
use weir_wire::base64;
use weir_wire::tls::ClientTls;

/// Longest feed: it is held in memory.
const FEED_MOST: u64 = 1 << 30;

/// The WebSocket message without `--data`. It is not empty, so that an echo can be told from no answer.
const MESSAGE: &[u8] = b"hello";

/// The parts of a request that all targets share.
#[derive(Clone, Copy)]
struct Asked<'a> {
    method: &'a str,
    fields: &'a [(String, String)],
    /// As given; for gRPC it is JSON.
    body: &'a [u8],
    /// The proxy that requests are sent to; `None` for one that only opens a tunnel.
    proxy: Option<&'a Proxy>,
}

impl Reader<'_> {
    #[allow(clippy::type_complexity)] // four lists that belong together for one call
    pub(super) fn targets(
        &mut self,
        data: Option<&Arc<Data>>,
    ) -> (Vec<Origin>, Vec<Target>, Vec<u32>, Vec<TargetPlan>) {
        let o = self.options;
        self.fits_http3();
        let is_websocket = o.urls.iter().any(|u| Url::parse(u).is_ok_and(|u| u.scheme.is_websocket()));
        if is_websocket {
            self.websocket();
        } else if o.binary {
            self.wrong("--binary", "is for messages of a WebSocket: ws://host/path");
        }
        let mut calls = self.calls();
        let body = self.body().or_else(|| is_websocket.then(|| MESSAGE.to_vec()));
        let mut fields = self.fields();
        fields.extend(calls.as_ref().map(|c| c.fields.clone()).unwrap_or_default());
        let method = self.method((body.is_some() && !is_websocket) || calls.is_some());
        if o.urls.is_empty() {
            self.wrong("URL", "expected one, such as http://127.0.0.1:8080/");
        }
        // Built once, whatever the result, so a mistake is reported once.
        let mut tls: Option<Option<ClientTls>> = None;
        let mut seen: Vec<(Scheme, String, u16)> = Vec::new();
        let (mut origins, mut targets, mut weights, mut plans) = (vec![], vec![], vec![], vec![]);
        for text in &o.urls {
            let url = match Url::parse(text) {
                Ok(url) => url,
                Err(hint) => {
                    self.wrong(text, &hint);
                    continue;
                }
            };
            if url.scheme.is_websocket() != is_websocket {
                self.wrong(text, "WebSocket and HTTP are no mix: load them in two runs");
            }
            self.url_fits_http3(text, &url);
            let key = (url.scheme, url.host.clone(), url.port);
            let origin = seen.iter().position(|s| *s == key).unwrap_or_else(|| {
                // A proxy resolves the target's name itself.
                let (proxy, addresses) = match self.proxy(&url) {
                    Some((proxy, addresses)) => (Some(proxy), addresses),
                    None => (None, self.addresses(text, &url)),
                };
                if url.scheme.is_tls() && tls.is_none() {
                    tls = Some(self.tls());
                }
                let tls =
                    tls.clone().flatten().filter(|_| url.scheme.is_tls()).map(|t| (t, url.host.clone()));
                origins.push(self.origin(addresses, tls, proxy));
                seen.push(key);
                origins.len() - 1
            });
            let mut plan = url.plan();
            plan.method.clone_from(&method);
            plan.addresses = origins
                .get(origin)
                .map(|o| o.addresses.iter().map(ToString::to_string).collect())
                .unwrap_or_default();
            let call = match (url.scheme.is_grpc(), &mut calls, origins.get(origin)) {
                (false, ..) => None,
                (true, Some(calls), Some(origin)) => match self.call(text, &url, origin, &fields, calls) {
                    Some(call) => Some(call),
                    None => continue,
                },
                (true, ..) => continue, // already reported
            };
            let proxy = origins.get(origin).and_then(|o| o.proxy.as_ref());
            plan.proxy = proxy.map(|p| p.name.clone());
            let asked = Asked {
                method: &method,
                fields: &fields,
                body: body.as_deref().unwrap_or_default(),
                proxy: proxy.filter(|p| p.connect.is_none()),
            };
            let target = self.render(text, &url, &asked, call, data, &mut plan);
            targets.push(Target { origin, ..target });
            weights.push(url.weight);
            plans.push(plan);
        }
        self.rules_are_used(&seen);
        if tls.is_none()
            && (o.cert.is_some() || o.key.is_some() || o.cacert.is_some() || o.server_name.is_some())
        {
            if o.server_name.is_some() {
                self.wrong(
                    "--server-name",
                    "no URL speaks TLS: leave it out, or write https://, wss:// or grpcs://",
                );
            }
            self.tls(); // no URL needs TLS, but a file that cannot be read is still a mistake
        }
        (origins, targets, weights, plans)
    }

    /// Renders the request as sent on the wire. Apart from the given fields it has only Host, and Content-Length with
    /// a body, as with wrk. A gRPC call also has the fields that gRPC requires and grpc-timeout, as with ghz.
    fn render(
        &mut self,
        place: &str,
        url: &Url,
        asked: &Asked<'_>,
        call: Option<Arc<Call>>,
        data: Option<&Arc<Data>>,
        plan: &mut TargetPlan,
    ) -> Target {
        let Asked { method, fields, body, proxy } = *asked;
        let mut all: Vec<(String, String)> = Vec::new();
        let has = |name: &str| fields.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        if !has("host") {
            all.push(("Host".to_owned(), url.authority.clone()));
        }
        if call.is_some() {
            let own = [("TE", "trailers".to_owned()), ("Content-Type", "application/grpc".to_owned())];
            let own = own.into_iter().chain([("grpc-timeout", crate::grpc::timeout(self.timeout()))]);
            all.extend(own.filter(|(n, _)| !has(n)).map(|(n, v)| (n.to_owned(), v)));
        }
        all.extend(fields.iter().cloned());
        if let (Some(credentials), false) = (&url.credentials, has("authorization")) {
            all.push((
                "Authorization".to_owned(),
                format!("Basic {}", base64::encode(credentials.as_bytes())),
            ));
        }
        let is_websocket = url.scheme.is_websocket();
        if is_websocket {
            let handshake =
                [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")];
            all.extend(handshake.map(|(name, value)| (name.to_owned(), value.to_owned())));
        } else if self.options.no_keepalive && !has("connection") {
            all.push(("Connection".to_owned(), "close".to_owned()));
        }
        // RFC 9112 §3.2.2: a request to a proxy has the whole URL.
        let whole = proxy.map(|_| format!("{}://{}", url.scheme.name(), url.authority)).unwrap_or_default();
        if let Some(authorization) = proxy.and_then(|p| p.authorization.as_ref()) {
            all.push(("Proxy-Authorization".to_owned(), authorization.clone()));
        }
        let path = call.as_ref().map_or_else(|| url.path.clone(), |c| c.path());
        let line = format!("{method} {whole}{path}");
        let lines: String = all.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = match method {
            _ if is_websocket || call.is_some() => Length::Never,
            "POST" | "PUT" | "PATCH" => Length::Always,
            _ => Length::WithBody,
        };
        let parts = [line.as_bytes(), lines.as_bytes(), body];
        let mut template = self.template(place, parts, length, data.map(Arc::as_ref));
        plan.odd_values = self.odd_values(parts, template.as_ref(), data.map(Arc::as_ref));
        let mut framed = Vec::new();
        if let Some(call) = &call {
            if let Some(template) = &mut template {
                template.call = Some(Arc::clone(call));
            }
            (framed, plan.call) = {
                let (framed, plan) = self.messages(call, body, template.as_ref(), data);
                (framed, Some(plan))
            };
            plan.path.clone_from(&path);
        }
        let body = if call.is_some() { &framed[..] } else { body };
        plan.body_bytes = body.len() as u64;
        let mut bytes = format!("{line} HTTP/1.1\r\n{lines}").into_bytes();
        if length == Length::Always || (length == Length::WithBody && !body.is_empty()) {
            let length = body.len().to_string();
            bytes.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
            all.push(("Content-Length".to_owned(), length));
        }
        bytes.extend_from_slice(b"\r\n");
        let head_bytes = bytes.len();
        bytes.extend_from_slice(body);
        plan.headers = all
            .into_iter()
            .map(|(n, v)| if is_secret(&n) { (n, "***".to_owned()) } else { (n, v) })
            .collect();
        let head = bytes.get(..head_bytes).unwrap_or_default();
        let scheme = url.scheme.on_the_wire();
        let is_h2 = self.options.http2 || call.is_some();
        let version = match self.options.http3 {
            #[cfg(feature = "http3")]
            true => Some(Version::H3),
            _ => is_h2.then_some(Version::H2),
        };
        let frames = version.map(|v| Rendered::new_of(v, head, scheme, bytes.len() == head_bytes));
        let is_head = method == "HEAD";
        let message = if self.options.binary { Kind::Binary } else { Kind::Text };
        Target {
            origin: 0,
            scheme,
            call,
            is_head,
            bytes: bytes.into(),
            head_bytes,
            frames,
            message,
            template,
        }
    }

    /// Reports a feed that no request uses.
    pub(super) fn feed_is_used(&mut self, targets: &[Target], data: Option<&Data>) {
        let Some(path) = self.options.feed.as_ref().filter(|_| data.is_some() && !targets.is_empty()) else {
            return;
        };
        if targets.iter().filter_map(|t| t.template.as_ref()).any(Template::takes_data) {
            return;
        }
        let names = data.map(Data::names).unwrap_or_default();
        let why =
            if self.options.raw { "with --raw braces are sent as they are" } else { "no request has one" };
        let hint =
            format!("its rows are for {{{{data.NAME}}}}, and {why}: use one of {names}, or leave it out");
        self.wrong(&format!("--feed {}", path.display()), &hint);
    }

    /// Reports options that cannot be combined with a WebSocket.
    fn websocket(&mut self) {
        let o = self.options;
        if o.http2 {
            self.wrong("--http2", "a WebSocket is opened over HTTP/1.1: leave it out");
        }
        if o.http3 {
            self.wrong("--http3", "a WebSocket is opened over HTTP/1.1: leave it out");
        }
        if o.pipeline.is_some_and(|n| n > 1) {
            self.wrong("--pipeline", "is HTTP/1.1's; each message of a WebSocket waits for its answer");
        }
        if !o.forms.is_empty() {
            self.wrong("-F", "a message of a WebSocket has no parts: give --data");
        }
        if o.method.as_ref().is_some_and(|m| m != "GET") {
            self.wrong("-X", "the handshake of a WebSocket is a GET");
        }
        for header in &o.headers {
            let name = header.split(':').next().unwrap_or_default().trim().to_ascii_lowercase();
            let of_handshake = ["connection", "upgrade"].contains(&name.as_str())
                || (name.starts_with("sec-websocket-") && name != "sec-websocket-protocol");
            if of_handshake {
                self.wrong(&format!("-H {header:?}"), "belongs to the handshake and can not be set");
            }
        }
        if !o.binary && o.data.as_ref().is_some_and(|d| d.starts_with('@')) {
            let text = self.body().is_none_or(|body| str::from_utf8(&body).is_ok());
            if !text {
                self.wrong("--data", "a text message is UTF-8; --binary sends bytes");
            }
        }
    }

    /// The template of a request, if requests differ.
    fn template(
        &mut self,
        place: &str,
        parts: [&[u8]; 3],
        length: Length,
        data: Option<&Data>,
    ) -> Option<Template> {
        if self.options.raw || self.feed_is_missing {
            return None;
        }
        let mut read = |part: &[u8]| match Text::parse(part, data) {
            Ok(text) => text,
            Err(hint) => {
                self.wrong(place, &hint);
                Text::default()
            }
        };
        let [line, fields, body] = parts.map(&mut read);
        for column in fields.columns() {
            if let Some(row) = data.and_then(|d| d.row_with_control(column)) {
                self.wrong("--feed", &format!("row {row} would put a control character into a header field"));
            }
        }
        let quoted = body.quoted_columns();
        let as_text = [&line, &fields].into_iter().flat_map(Text::columns).chain(quoted);
        if let Some((name, row)) =
            data.and_then(|data| as_text.filter_map(|column| data.nested(column)).next())
        {
            let hint = format!(
                "row {row} has an object or a list as `{name}`, where {{{{data.{name}}}}} stands for text: take a value out of it, or leave away the quotes around it in a body of JSON"
            );
            self.wrong("--feed", &hint);
        }
        let fixed = [&line, &fields, &body].iter().all(|t| t.is_fixed());
        (!fixed).then_some(Template { line, fields, body, length, call: None })
    }

    /// Values that are probably sent by mistake. With `--raw`, braces are intended.
    fn odd_values(&self, parts: [&[u8]; 3], template: Option<&Template>, data: Option<&Data>) -> Vec<String> {
        let mut found = Vec::new();
        let braces = !self.options.raw;
        let places = [Place::Line, Place::Fields, Place::Body];
        match template {
            None => parts.iter().zip(places).for_each(|(part, place)| odd(part, place, braces, &mut found)),
            Some(t) => {
                for (text, place) in [&t.line, &t.fields, &t.body].into_iter().zip(places) {
                    text.literals().for_each(|part| odd(part, place, braces, &mut found));
                    let cells = data.into_iter().flat_map(|data| text.columns().flat_map(|c| data.cells(c)));
                    // A cell is a whole value.
                    cells.for_each(|cell| odd(cell.as_bytes(), Place::Line, braces, &mut found));
                }
            }
        }
        found
    }

    pub(super) fn feed(&mut self) -> Option<Data> {
        let path = self.options.feed.as_ref()?;
        let read = read_at_most(path, FEED_MOST, "a feed is at most 1 GiB")
            .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned()))
            .and_then(|text| Data::parse(&text));
        match read {
            Ok(data) => Some(data),
            Err(hint) => {
                self.wrong(&format!("--feed {}", path.display()), &hint);
                None
            }
        }
    }

    fn method(&mut self, has_body: bool) -> String {
        let method =
            self.options.method.clone().unwrap_or_else(|| if has_body { "POST" } else { "GET" }.to_owned());
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if method.is_empty() || method.len() > 32 || !method.bytes().all(token) || method == "CONNECT" {
            self.wrong(&format!("-X {method}"), "expected a method such as GET, POST or DELETE");
        }
        method
    }

    fn fields(&mut self) -> Vec<(String, String)> {
        let o = self.options;
        let mut fields = Vec::new();
        for header in &o.headers {
            let place = format!("-H {header:?}");
            let Some((name, value)) = header.split_once(':') else {
                self.wrong(&place, "expected `name: value`");
                continue;
            };
            let (name, value) = (name.trim(), value.trim());
            let framing =
                ["content-length", "transfer-encoding"].iter().any(|f| name.eq_ignore_ascii_case(f));
            if FieldName::new(name).is_err() {
                self.wrong(&place, "this is not a header name");
            } else if value.bytes().any(|b| b != b'\t' && (b < 0x20 || b == 0x7f)) {
                self.wrong(&place, "the value holds a control character");
            } else if framing {
                self.wrong(&place, "follows from the body and can not be set");
            } else {
                fields.push((name.to_owned(), value.to_owned()));
            }
        }
        if o.user.is_some() && o.bearer.is_some() {
            self.wrong("--bearer", "--user is given already: use only one of them");
        }
        if let Some(user) = &o.user {
            if !user.contains(':') {
                self.wrong(&format!("-u {user}"), "expected NAME:PASSWORD");
            }
            fields.push(("Authorization".to_owned(), format!("Basic {}", base64::encode(user.as_bytes()))));
        }
        if let Some(token) = &o.bearer {
            if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
                self.wrong("--bearer", "a token is visible ASCII without blanks");
            }
            fields.push(("Authorization".to_owned(), format!("Bearer {token}")));
        }
        if !o.forms.is_empty() {
            fields.push(("Content-Type".to_owned(), multipart_type()));
        }
        if !o.cookies.is_empty() {
            let fine = |c: &String| c.contains('=') && !c.bytes().any(|b| b < 0x20 || b == 0x7f);
            for bad in o.cookies.iter().filter(|c| !fine(c)) {
                self.wrong(&format!("--cookie {bad:?}"), "expected name=value");
            }
            fields.push(("Cookie".to_owned(), o.cookies.join("; ")));
        }
        fields
    }
}
