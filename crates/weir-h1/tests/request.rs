//! Request heads as transcripts: the bytes, and the expected reading or error.
//!
//! Sections are of RFC 9112 unless another is named. Every row also runs byte by byte, and cut in two at every
//! position.

mod common;

use common::{Row, run, run_owned};
use weir_h1::{Kind, Limits, RequestHead};

/// §3: the request line.
const REQUEST_LINE: &[Row] = &[
    // §3, the plain case
    (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", Ok("GET / @a | Host: a")),
    (
        b"GET /where?q=now HTTP/1.1\r\nHost: www.example.org\r\n\r\n",
        Ok("GET /where ?q=now @www.example.org | Host: www.example.org"),
    ),
    (b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", Ok("HEAD / @a | Host: a")),
    (b"DELETE /x HTTP/1.1\r\nHost: a\r\n\r\n", Ok("DELETE /x @a | Host: a")),
    // §2.2: one empty line before the request line, no more
    (b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Ok("GET / @a | Host: a")),
    (b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"\rGET / HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::LineEnd)),
    (b" GET / HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"\r\n GET / HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    // §3.1: methods are tokens, case matters, unknown ones pass
    (b"get / HTTP/1.1\r\nHost: a\r\n\r\n", Ok("get / @a | Host: a")),
    (b"PURGE /x HTTP/1.1\r\nHost: a\r\n\r\n", Ok("PURGE /x @a | Host: a")),
    (b"M-SEARCH /x HTTP/1.1\r\nHost: a\r\n\r\n", Ok("M-SEARCH /x @a | Host: a")),
    (b"GET / HTTP/1.1\r\nHost: a.b.\r\n\r\n", Ok("GET / @a.b. | Host: a.b.")),
    (b"GET / HTTP/1.1\r\nHost: a..\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: .a\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: .\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: a..b:80\r\n\r\n", Err(Kind::Host)),
    (b"GET http://a..b/ HTTP/1.1\r\nHost: a..b\r\n\r\n", Err(Kind::Target)),
    (b"!#$%&'*+-.^_`|~ / HTTP/1.1\r\nHost: a\r\n\r\n", Ok("!#$%&'*+-.^_`|~ / @a | Host: a")),
    (
        b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1\r\nHost: a\r\n\r\n",
        Ok("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / @a | Host: a"),
    ),
    (b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"G\0T / HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"G\xc3\x89T / HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", Err(Kind::StartLine)), // a TLS ClientHello
    (b"\r\n\r\n", Err(Kind::StartLine)),
    // §3: single spaces, nothing before or after
    (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"GET /\tHTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET / x HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"GET / HTTP/1.1 x\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"GET\r\n\r\n", Err(Kind::StartLine)),
    (b"GET /\r\n\r\n", Err(Kind::Target)), // HTTP/0.9
    (b"GET /\n", Err(Kind::Target)),
    (b"GET / \r\n\r\n", Err(Kind::StartLine)),
    // §2.3: the version
    (b"GET / HTTP/1.0\r\n\r\n", Ok("GET / 1.0 close")),
    (b"GET / HTTP/0.9\r\n\r\n", Err(Kind::Version)),
    (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", Err(Kind::Version)),
    (b"GET / HTTP/2\r\nHost: a\r\n\r\n", Err(Kind::Version)),
    (b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", Err(Kind::Version)),
    (b"GET / HTTP/1.9\r\nHost: a\r\n\r\n", Err(Kind::Version)),
    (b"GET / HTTP/1.10\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"GET / HTTP/11\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"GET / HTTP/1,1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"GET / HTTP/1.x\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"GET / HTTP/x.1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"GET / HTTP/ 1.1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"GET / http/1.1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"GET / Http/1.1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"GET / ICY/1.1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Err(Kind::Target)),
    // §2.2: bare CR and bare LF in the request line
    (b"GET / HTTP/1.1\nHost: a\r\n\r\n", Err(Kind::LineEnd)),
    (b"GET / HTTP/1.1\rHost: a\r\n\r\n", Err(Kind::LineEnd)),
    (b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", Err(Kind::LineEnd)),
    (b"GET /\n HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET /\r HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET\r / HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::StartLine)),
    // §6, what is behind the head stays
    (
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /b HTTP/1.1\r\n",
        Ok("GET / @a | Host: a || \\r\\nGET /b HTTP/1.1\\r\\n"),
    ),
    (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET ",
        Ok("POST / @a length=3 | Host: a | Content-Length: 3 || abcGET "),
    ),
    (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\0\xff garbage", Ok("GET / @a | Host: a || \\x00\\xff garbage")),
];

/// §3.2: the request target and Host.
const TARGET: &[Row] = &[
    // §3.2.1 origin-form
    (b"GET /? HTTP/1.1\r\nHost: a\r\n\r\n", Ok("GET / ? @a | Host: a")),
    (b"GET /a?b?c/d HTTP/1.1\r\nHost: a\r\n\r\n", Ok("GET /a ?b?c/d @a | Host: a")),
    (b"GET //x/../y HTTP/1.1\r\nHost: a\r\n\r\n", Ok("GET //x/../y @a | Host: a")), // canonical later, in the gateway
    (b"GET /%00%zz HTTP/1.1\r\nHost: a\r\n\r\n", Ok("GET /%00%zz @a | Host: a")),
    (b"GET /?a={\"b\":[1|2]} HTTP/1.1\r\nHost: a\r\n\r\n", Ok("GET / ?a={\"b\":[1|2]} @a | Host: a")),
    (b"GET /a:b@c HTTP/1.1\r\nHost: a\r\n\r\n", Ok("GET /a:b@c @a | Host: a")),
    (b"GET /http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", Ok("GET /http://b/ @a | Host: a")),
    (b"GET x HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET ?x HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET example.com:80 HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET /#top HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET /\x0b HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    // §3.2.2 absolute-form
    (b"GET http://a/p?q HTTP/1.1\r\nHost: a\r\n\r\n", Ok("GET /p ?q @a absolute | Host: a")),
    (b"GET HTTP://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Ok("GET / @a absolute | Host: a")),
    (b"GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Ok("GET / @a absolute | Host: a")),
    (
        b"GET http://A.example/ HTTP/1.1\r\nHost: a.EXAMPLE\r\n\r\n",
        Ok("GET / @a.EXAMPLE absolute | Host: a.EXAMPLE"),
    ),
    (b"GET http://a:80/ HTTP/1.1\r\nHost: a\r\n\r\n", Ok("GET / @a absolute | Host: a")),
    (b"GET http://a/ HTTP/1.1\r\nHost: a:80\r\n\r\n", Ok("GET / @a:80 absolute | Host: a:80")),
    (b"GET https://a:443/ HTTP/1.1\r\nHost: a\r\n\r\n", Ok("GET / @a absolute | Host: a")),
    (b"GET http://a HTTP/1.1\r\nHost: a\r\n\r\n", Ok("GET / @a absolute | Host: a")),
    (b"GET http://a?q/r HTTP/1.1\r\nHost: a\r\n\r\n", Ok("GET / ?q/r @a absolute | Host: a")),
    (
        b"GET http://[::1]:8080/ HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
        Ok("GET / @[::1]:8080 absolute | Host: [::1]:8080"),
    ),
    // HTTP/1.0 without Host: the target's authority is sent on as Host (§3.2.2)
    (b"GET http://a:81/p HTTP/1.0\r\n\r\n", Ok("GET /p @a:81 absolute 1.0 close | Host: a:81")),
    (b"GET http://a/ HTTP/1.0\r\nHost: b\r\n\r\n", Err(Kind::Host)),
    (b"GET http://a/ HTTP/1.1\r\n\r\n", Err(Kind::Host)),
    (b"GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", Err(Kind::Host)),
    (b"GET http://a/ HTTP/1.1\r\nHost: a.b\r\n\r\n", Err(Kind::Host)),
    (b"GET http://a/ HTTP/1.1\r\nHost:\r\n\r\n", Err(Kind::Host)),
    (b"GET http://a:8080/ HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Host)),
    (b"GET http://a:443/ HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Host)),
    (b"GET https://a:80/ HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Host)),
    (b"GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET http://u:p@a/ HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET http://a\\@b/ HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET http:///p HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET http:// HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET http://:80/ HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET http:/a/ HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET http:a HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET http://a:x/ HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET http://a:80:80/ HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET http://[::1/ HTTP/1.1\r\nHost: [::1]\r\n\r\n", Err(Kind::Target)),
    // §3.2.3 authority-form, of CONNECT only
    (b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", Ok("CONNECT a:443 @a:443 authority | Host: a:443")),
    (
        b"CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\n\r\n",
        Ok("CONNECT [::1]:443 @[::1]:443 authority | Host: [::1]:443"),
    ),
    (b"CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"CONNECT a: HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"CONNECT http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"CONNECT a:443/x HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"CONNECT a:443?x HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"CONNECT u@a:443 HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    // §3.2.4 asterisk-form, of OPTIONS only
    (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", Ok("OPTIONS * @a asterisk | Host: a")),
    (b"OPTIONS / HTTP/1.1\r\nHost: a\r\n\r\n", Ok("OPTIONS / @a | Host: a")),
    (b"OPTIONS http://a HTTP/1.1\r\nHost: a\r\n\r\n", Ok("OPTIONS * @a asterisk | Host: a")),
    (b"OPTIONS http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Ok("OPTIONS / @a absolute | Host: a")),
    // an empty path is `*` only without a query
    (b"OPTIONS http://a?q HTTP/1.1\r\nHost: a\r\n\r\n", Ok("OPTIONS / ?q @a absolute | Host: a")),
    (b"OPTIONS *?q HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"OPTIONS ** HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    (b"options * HTTP/1.1\r\nHost: a\r\n\r\n", Err(Kind::Target)),
    // §3.2, RFC 9110 §7.2: exactly one valid Host
    (b"GET / HTTP/1.1\r\nhOST:\t a:8080 \t\r\n\r\n", Ok("GET / @a:8080 | hOST: a:8080")),
    (
        b"GET / HTTP/1.1\r\nHost: my_svc.x-y.z~1.\r\n\r\n",
        Ok("GET / @my_svc.x-y.z~1. | Host: my_svc.x-y.z~1."),
    ),
    (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", Ok("GET / @127.0.0.1 | Host: 127.0.0.1")),
    (b"GET / HTTP/1.1\r\nHost: [2001:db8::1]\r\n\r\n", Ok("GET / @[2001:db8::1] | Host: [2001:db8::1]")),
    (
        b"GET / HTTP/1.1\r\nHost: [::ffff:1.2.3.4]:65535\r\n\r\n",
        Ok("GET / @[::ffff:1.2.3.4]:65535 | Host: [::ffff:1.2.3.4]:65535"),
    ),
    (b"GET / HTTP/1.1\r\nHost: a:\r\n\r\n", Ok("GET / @a: | Host: a:")), // RFC 3986 §3.2.3: port = *DIGIT
    (b"GET / HTTP/1.0\r\nHost: a\r\n\r\n", Ok("GET / @a 1.0 close | Host: a")),
    (b"GET / HTTP/1.1\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nX: a\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\nhost: b\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: a,b\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: \t \r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.0\r\nHost:\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: a?b\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: http://a\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: a%2eb\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: \"a\"\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: \xc3\xa4\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: :80\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: a:80x\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: a:+80\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: a:-1\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: a:80:90\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: a:123456\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: ::1\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: []\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: [::1]:x\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: [dead]\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: [:::::]\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: [1.2.3.4]\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: [fe80::1%25eth0]\r\n\r\n", Err(Kind::Host)),
    (b"GET / HTTP/1.1\r\nHost: [v1.a]\r\n\r\n", Err(Kind::Host)),
];

/// Field lines of `POST / HTTP/1.1` after `Host: a`. Expected: their difference from `POST / @a`, `| Host: a`.
const FIELDS: &[Row] = &[
    // §5, RFC 9110 §5.5: optional white space around a value is none of it
    (b"A: 1\r\n", Ok("| A: 1")),
    (b"A:1\r\n", Ok("| A: 1")),
    (b"A:  \t1 \t \r\n", Ok("| A: 1")),
    (b"A: 1 2\t3\r\n", Ok("| A: 1 2\\t3")),
    (b"A:\r\n", Ok("| A: ")),
    (b"A: \r\n", Ok("| A: ")),
    (b"A: \t \t\r\n", Ok("| A: ")),
    (b"A: 1\r\na: 2\r\nA: 3\r\n", Ok("| A: 1 | a: 2 | A: 3")),
    (b"A: b: c:\r\n", Ok("| A: b: c:")),
    (b"A: :\r\n", Ok("| A: :")),
    (b"A: \xe4\xff\x80\r\n", Ok("| A: \\xe4\\xff\\x80")), // obs-text
    (b"A: \"q\\\"u\"\r\n", Ok("| A: \"q\\\\\"u\"")),
    (
        b"A: 0123456789abcdef0123456789abcdef0123456789\r\n",
        Ok("| A: 0123456789abcdef0123456789abcdef0123456789"),
    ),
    (b"!#$%&'*+-.^_`|~09: x\r\n", Ok("| !#$%&'*+-.^_`|~09: x")),
    // §5.1: names are tokens and end at the colon
    (b"A : 1\r\n", Err(Kind::FieldName)),
    (b"A\t: 1\r\n", Err(Kind::FieldName)),
    (b"A B: 1\r\n", Err(Kind::FieldName)),
    (b": 1\r\n", Err(Kind::FieldName)),
    (b":\r\n", Err(Kind::FieldName)),
    (b"A\r\n", Err(Kind::FieldName)),
    (b"A=1\r\n", Err(Kind::FieldName)),
    (b"A\0: 1\r\n", Err(Kind::FieldName)),
    (b"A\x0b: 1\r\n", Err(Kind::FieldName)),
    (b"A\xe4: 1\r\n", Err(Kind::FieldName)),
    (b"\"A\": 1\r\n", Err(Kind::FieldName)),
    (b"A[]: 1\r\n", Err(Kind::FieldName)),
    (b"GET /b HTTP/1.1\r\n", Err(Kind::FieldName)),
    // §2.2: bare CR and bare LF
    (b"A: 1\n", Err(Kind::LineEnd)),
    (b"A: 1\nB: 2\r\n", Err(Kind::LineEnd)),
    (b"A: 1\rB: 2\r\n", Err(Kind::LineEnd)),
    (b"A: 1\r\r\n", Err(Kind::LineEnd)),
    (b"A: \r1\r\n", Err(Kind::LineEnd)),
    (b"A:\n\r\n", Err(Kind::LineEnd)),
    (b"A\n: 1\r\n", Err(Kind::LineEnd)),
    (b"\nA: 1\r\n", Err(Kind::LineEnd)),
    (b"\rA: 1\r\n", Err(Kind::LineEnd)),
    (b"A: 1\r\n\n", Err(Kind::LineEnd)),
    (b"\n", Err(Kind::LineEnd)),
    (b"A: 1234567890\n1234567890\r\n", Err(Kind::LineEnd)),
    // RFC 9110 §5.5: control bytes in values, at every place of an eight-byte word
    (b"A: \0\r\n", Err(Kind::ControlByte)),
    (b"A: 1\x002\r\n", Err(Kind::ControlByte)),
    (b"A: 12345678\x01\r\n", Err(Kind::ControlByte)),
    (b"A: 1234567\x0b12345678\r\n", Err(Kind::ControlByte)),
    (b"A: 123456\x0c123456789\r\n", Err(Kind::ControlByte)),
    (b"A: 12345\x7f12345678\r\n", Err(Kind::ControlByte)),
    (b"A: \xff\x7f\xff\xff\xff\xff\xff\xff\xff\r\n", Err(Kind::ControlByte)),
    (b"A: \x80\x1f\x80\x80\x80\x80\x80\x80\x80\r\n", Err(Kind::ControlByte)),
    (b"A: \x08\r\n", Err(Kind::ControlByte)),
    (b"A: \x1b[31m\r\n", Err(Kind::ControlByte)),
    // §2.2 and §5.2: white space before a field line
    (b" A: 1\r\n", Err(Kind::Fold)),
    (b"\tA: 1\r\n", Err(Kind::Fold)),
    (b"A: 1\r\n 2\r\n", Err(Kind::Fold)),
    (b"A: 1\r\n\t2\r\n", Err(Kind::Fold)),
    (b"A: 1\r\n \r\n", Err(Kind::Fold)),
    (b"A: 1\r\n B: 2\r\n", Err(Kind::Fold)),
    (b"Transfer-Encoding:\r\n chunked\r\n", Err(Kind::TransferEncoding)),
    // §6.2: Content-Length is one plain number
    (b"Content-Length: 5\r\n", Ok("length=5 | Content-Length: 5")),
    (b"content-length:5\r\n", Ok("length=5 | content-length: 5")),
    (b"Content-Length:   5 \t\r\n", Ok("length=5 | Content-Length: 5")),
    (b"Content-Length: 0\r\n", Ok("| Content-Length: 0")),
    (b"Content-Length: 007\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 05\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 00\r\n", Err(Kind::ContentLength)),
    (
        b"Content-Length: 9223372036854775807\r\n",
        Ok("length=9223372036854775807 | Content-Length: 9223372036854775807"),
    ),
    (b"Content-Length: 9223372036854775808\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 18446744073709551615\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 18446744073709551621\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 99999999999999999999999999\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 00000000000000000005\r\n", Err(Kind::ContentLength)),
    (b"Content-Length:\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: +5\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: -5\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 0x5\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 5,5\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 5, 5\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 5,\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 5 5\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 5;a\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 5.0\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 1e3\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 1_000\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: \"5\"\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: \xb5\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 5\x0b\r\n", Err(Kind::ControlByte)),
    (b"Content-Length: 5\r\nContent-Length: 5\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 5\r\nContent-Length: 6\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 5\r\nA: 1\r\ncontent-length: 0\r\n", Err(Kind::ContentLength)),
    (b"Content-Length : 5\r\n", Err(Kind::FieldName)),
    // §6.1: Transfer-Encoding is `chunked` and nothing else
    (b"Transfer-Encoding: chunked\r\n", Ok("chunked")),
    (b"transfer-encoding:ChunKed\r\n", Ok("chunked")),
    (b"Transfer-Encoding:  chunked\t \r\n", Ok("chunked")),
    (b"Transfer-Encoding: \tchunked\r\n", Ok("chunked")),
    (b"Transfer-Encoding: chunked, identity\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: identity, chunked\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: gzip, chunked\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: chunked, chunked\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: chunked,\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: ,chunked\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: identity\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: gzip\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: xchunked\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: chunkedx\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: chunk\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: chunked;q=1\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: \"chunked\"\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: 'chunked'\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: chunked chunked\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding:\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: \xa0chunked\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: chunked\x0b\r\n", Err(Kind::ControlByte)),
    (b"Transfer-Encoding: \x0bchunked\r\n", Err(Kind::ControlByte)),
    (b"Transfer-Encoding: chunked\0\r\n", Err(Kind::ControlByte)),
    (b"Transfer-Encoding : chunked\r\n", Err(Kind::FieldName)),
    (b"Transfer-Encoding\t: chunked\r\n", Err(Kind::FieldName)),
    (b"Transfer-Encoding\x0b: chunked\r\n", Err(Kind::FieldName)),
    (b" Transfer-Encoding: chunked\r\n", Err(Kind::Fold)),
    (b"X: x\nTransfer-Encoding: chunked\r\n", Err(Kind::LineEnd)),
    (b"X: x\rTransfer-Encoding: chunked\r\n", Err(Kind::LineEnd)),
    (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n", Err(Kind::TransferEncoding)),
    // §6.3: both, in either order
    (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Err(Kind::Framing)),
    (b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Err(Kind::Framing)),
    (b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", Err(Kind::Framing)),
    (b"Content-Length: 5\r\nTransfer-Encoding: xchunked\r\n", Err(Kind::TransferEncoding)),
    // names that servers behind us might read as these
    (b"Transfer_Encoding: chunked\r\nA: 1\r\n", Ok("| A: 1")),
    (b"Content_Length: 5\r\nContent-Length: 3\r\n", Ok("length=3 | Content-Length: 3")),
    (b"X_Forwarded_For: 1.2.3.4\r\nX-Forwarded_Proto: https\r\nx_real_ip: 1\r\n", Ok("")),
    (b"X_Forwarded_Prefix: /a\r\nX_Forwarded_Ssl: on\r\nx-forwarded_scheme: https\r\nX_FORWARDED_SERVER: a\r\n", Ok("")),
    (b"X_Forwarded: 1\r\nX_Original_URL: /a\r\nx_rewrite-url: /a\r\n", Ok("")),
    (b"X_Other: 1\r\n", Ok("| X_Other: 1")),
    (b"XTransfer-Encoding: chunked\r\n", Ok("| XTransfer-Encoding: chunked")),
    (b"Transfer-Encodin: chunked\r\n", Ok("| Transfer-Encodin: chunked")),
    // §9.3: persistence
    (b"Connection: close\r\n", Ok("close")),
    (b"Connection: Close\r\n", Ok("close")),
    (b"Connection: keep-alive\r\n", Ok("")),
    (b"Connection: keep-alive, close\r\n", Ok("close")),
    (b"Connection: keep-alive\r\nConnection: close\r\n", Ok("close")),
    (b"Connection: close\r\nConnection: keep-alive\r\n", Ok("close")),
    (b"Connection: ,close,,\r\n", Ok("close")),
    (b"Connection: closed\r\n", Ok("")),
    (b"Connection: \"close\"\r\n", Ok("")),
    (b"Connection:\r\n", Ok("")),
    (b"Keep-Alive: timeout=5\r\nProxy-Connection: close\r\n", Ok("")),
    // RFC 9110 §7.6.1: what Connection nominates goes, wherever it stands
    (b"X-A: 1\r\nConnection: x-a, X-B\r\nx-b: 2\r\nX-C: 3\r\n", Ok("| X-C: 3")),
    (b"Connection: X-A\r\nConnection: X-B\r\nX-A: 1\r\nX-B: 2\r\n", Ok("")),
    (b"Connection: close,X-A\t,\r\nX-A: 1\r\nX-A: 2\r\n", Ok("close")),
    (b"Connection: X-None\r\nX-A: 1\r\n", Ok("| X-A: 1")),
    (b"Connection: Trailer\r\nTrailer: X\r\n", Ok("")),
    (b"Connection: HTTP2-Settings\r\nHTTP2-Settings: x\r\n", Ok("")),
    // but never what framing, access rules and logs rest on
    (b"Connection: Host\r\n", Ok("")),
    (b"Connection: Content-Length\r\nContent-Length: 5\r\n", Ok("length=5 | Content-Length: 5")),
    (b"Content-Length: 5\r\nConnection: close, content-length\r\n", Ok("length=5 close | Content-Length: 5")),
    (b"Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n", Ok("chunked")),
    (b"Connection: Authorization\r\nAuthorization: Basic x\r\n", Ok("| Authorization: Basic x")),
    (b"Connection: Proxy-Authorization\r\nProxy-Authorization: x\r\n", Ok("| Proxy-Authorization: x")),
    (b"Connection: Cookie\r\nCookie: a=b\r\n", Ok("| Cookie: a=b")),
    (b"Connection: X-Forwarded-For\r\nX-Forwarded-For: 1\r\n", Ok("| X-Forwarded-For: 1")),
    (
        b"Connection: x-forwarded-proto,X-Forwarded-Host\r\nX-Forwarded-Proto: 1\r\nX-Forwarded-Host: 2\r\n",
        Ok("| X-Forwarded-Proto: 1 | X-Forwarded-Host: 2"),
    ),
    (
        b"Connection: X-Forwarded-Client-Cert\r\nX-Forwarded-Client-Cert: 1\r\n",
        Ok("| X-Forwarded-Client-Cert: 1"),
    ),
    (b"Connection: Forwarded\r\nForwarded: for=1\r\n", Ok("| Forwarded: for=1")),
    (b"Connection: X-Real-IP\r\nX-Real-IP: 1\r\n", Ok("| X-Real-IP: 1")),
    (b"Connection: Via\r\nVia: 1.1 x\r\n", Ok("| Via: 1.1 x")),
    (b"Connection: Content-Encoding\r\nContent-Encoding: gzip\r\n", Ok("| Content-Encoding: gzip")),
    (
        b"Connection: Expect\r\nExpect: 100-continue\r\nContent-Length: 1\r\n",
        Ok("length=1 expect | Expect: 100-continue | Content-Length: 1"),
    ),
    // RFC 9110 §7.8: Upgrade counts where Connection nominates it
    (b"Connection: Upgrade\r\nUpgrade: websocket\r\n", Ok("upgrade=websocket")),
    (b"Upgrade: websocket\r\nConnection: keep-alive, upgrade\r\n", Ok("upgrade=websocket")),
    (b"Connection: upgrade\r\nUpgrade: h2c, websocket\r\n", Ok("")),
    (b"Upgrade: websocket\r\n", Ok("")),
    (b"Connection: Upgrade\r\n", Ok("")),
    (b"Connection: Upgrade\r\nUpgrade:\r\n", Ok("")),
    (b"Connection: Upgrade\r\nUpgrade: \t\r\nUpgrade: a\r\n", Ok("upgrade=a")),
    (b"Connection: close, Upgrade\r\nUpgrade: websocket\r\n", Ok("close upgrade=websocket")),
    (b"Connection: upgraded\r\nUpgrade: websocket\r\n", Ok("")),
    // RFC 9110 §10.1.1: Expect
    (
        b"Expect: 100-continue\r\nContent-Length: 1\r\n",
        Ok("length=1 expect | Expect: 100-continue | Content-Length: 1"),
    ),
    (b"Transfer-Encoding: chunked\r\nexpect: 100-Continue\r\n", Ok("chunked expect | expect: 100-Continue")),
    (
        b"Content-Length: 1\r\nExpect: 100-continue, 100-continue\r\n",
        Ok("length=1 expect | Content-Length: 1 | Expect: 100-continue, 100-continue"),
    ),
    (
        b"Content-Length: 1\r\nExpect: 100-continue\r\nExpect:\r\n",
        Ok("length=1 expect | Content-Length: 1 | Expect: 100-continue | Expect: "),
    ),
    (b"Expect: 100-continue\r\n", Ok("| Expect: 100-continue")), // nothing to wait for
    (b"Expect: 100-continue\r\nContent-Length: 0\r\n", Ok("| Expect: 100-continue | Content-Length: 0")),
    (b"Content-Length: 1\r\nExpect: 100-continue, x\r\n", Err(Kind::Expect)),
    (b"Content-Length: 1\r\nExpect: x\r\nExpect: 100-continue\r\n", Err(Kind::Expect)),
    (b"Content-Length: 1\r\nExpect: 100-continue\r\nExpect: x=y\r\n", Err(Kind::Expect)),
    (b"Content-Length: 1\r\nExpect: 100-continuex\r\n", Err(Kind::Expect)),
    (b"Content-Length: 1\r\nExpect: 200-ok\r\n", Err(Kind::Expect)),
    // RFC 9110 §10.1.4: TE
    (b"TE: trailers\r\nConnection: TE\r\n", Ok("te")),
    (b"te: gzip;q=0.5, Trailers\r\n", Ok("te")),
    (b"TE: gzip\r\nTE: trailers\r\n", Ok("te")),
    (b"TE: gzip\r\n", Ok("")),
    (b"TE: trailersx\r\n", Ok("")),
    (b"TE:\r\n", Ok("")),
    // what passes untouched
    (b"Trailer: X-Sum\r\nDate: x\r\nAccept: */*\r\n", Ok("| Trailer: X-Sum | Date: x | Accept: */*")),
];

/// HTTP/1.0 (§9.3, §6.1, RFC 9110 §7.8 and §10.1.1).
const HTTP10: &[Row] = &[
    (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Ok("GET / 1.0")),
    (b"GET / HTTP/1.0\r\nConnection: Keep-Alive, x\r\n\r\n", Ok("GET / 1.0")),
    (b"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", Ok("GET / 1.0 close")),
    (b"GET / HTTP/1.0\r\nConnection: x\r\n\r\n", Ok("GET / 1.0 close")),
    (b"GET / HTTP/1.0\r\nKeep-Alive: 300\r\n\r\n", Ok("GET / 1.0 close")),
    (
        b"POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\nab",
        Ok("POST / 1.0 length=2 close | Content-Length: 2 || ab"),
    ),
    (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", Err(Kind::Framing)),
    (b"POST / HTTP/1.0\r\nTransfer-Encoding: identity\r\n\r\n", Err(Kind::TransferEncoding)),
    (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", Err(Kind::Framing)),
    (b"GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", Ok("GET / 1.0 close")),
    // the expectation MUST be ignored: it is not sent on either
    (
        b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n",
        Ok("POST / 1.0 length=2 close | Content-Length: 2"),
    ),
    (b"GET / HTTP/1.0\r\nExpect:\r\n\r\n", Ok("GET / 1.0 close")),
    (
        b"POST / HTTP/1.0\r\nExpect: x\r\nContent-Length: 2\r\n\r\n",
        Ok("POST / 1.0 length=2 close | Content-Length: 2"),
    ),
];

#[test]
fn request_lines() {
    run::<RequestHead>(REQUEST_LINE);
}

#[test]
fn targets_and_hosts() {
    run::<RequestHead>(TARGET);
}

#[test]
fn field_lines() {
    let rows = FIELDS.iter().map(|&(lines, want)| {
        let bytes = [&b"POST / HTTP/1.1\r\nHost: a\r\n"[..], lines, b"\r\n"].concat();
        let told = want.map(|w| {
            let (said, fields) = w.split_once('|').unwrap_or((w, ""));
            let said = ["POST / @a", said.trim()].join(" ");
            let fields = if fields.is_empty() { String::new() } else { format!(" |{fields}") };
            format!("{} | Host: a{fields}", said.trim())
        });
        (bytes, told)
    });
    run_owned::<RequestHead>(rows.collect());
}

#[test]
fn http_1_0() {
    run::<RequestHead>(HTTP10);
}

/// A request with these field lines behind Host.
fn with(lines: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes()
}

/// Parses in one piece; the kind of the refusal.
fn refusal(bytes: &[u8], limits: &Limits) -> Option<Kind> {
    match common::read::<RequestHead>(bytes, &[], limits).0 {
        common::Read::Refused(kind) => Some(kind),
        common::Read::Complete(_) => None,
        common::Read::Partial => panic!("partial: {}", bytes.escape_ascii()),
    }
}

#[test]
fn limits_hold_to_the_byte() {
    let limits = Limits::default();
    // RFC 9110 §5.4: number of fields
    assert_eq!(refusal(&with(&"A: 1\r\n".repeat(99)), &limits), None);
    assert_eq!(refusal(&with(&"A: 1\r\n".repeat(100)), &limits), Some(Kind::TooManyFields));
    assert_eq!(refusal(&with(&"Keep-Alive: 1\r\n".repeat(100)), &limits), Some(Kind::TooManyFields));
    // RFC 9110 §5.4: size of the head
    for (filler, want) in [(0, None), (1, Some(Kind::HeadTooLarge)), (9999, Some(Kind::HeadTooLarge))] {
        let empty = with("A: \r\n").len();
        let bytes = with(&format!("A: {}\r\n", "x".repeat(limits.head_bytes - empty + filler)));
        assert_eq!(refusal(&bytes, &limits), want, "{filler}");
        // Behind the head there may be more than the limit.
        let more = [&bytes[..], &[b'x'; 40_000]].concat();
        assert_eq!(refusal(&more, &limits), want, "{filler}");
        let cuts = [10, limits.head_bytes / 2, limits.head_bytes - 1, limits.head_bytes];
        let pieces = common::read::<RequestHead>(&bytes, &cuts, &limits).0;
        assert_eq!(matches!(pieces, common::Read::Complete(_)), want.is_none(), "{filler}");
    }
    // A head that cannot end within the limit is refused without waiting for the byte behind it.
    let endless = [b"GET / HTTP/1.1\r\nHost: a\r\nA: ", &[b'x'; 40_000][..]].concat();
    assert_eq!(refusal(&endless[..limits.head_bytes], &limits), Some(Kind::HeadTooLarge));
    assert_eq!(refusal(&endless, &limits), Some(Kind::HeadTooLarge));
    let name = [b"GET / HTTP/1.1\r\nHost: a\r\n", &[b'x'; 70_000][..]].concat();
    assert_eq!(refusal(&name, &limits), Some(Kind::HeadTooLarge));
    // §3: the target
    let target = |n: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(n - 1)).into_bytes();
    assert_eq!(refusal(&target(limits.target_bytes), &limits), None);
    assert_eq!(refusal(&target(limits.target_bytes + 1), &limits), Some(Kind::TargetTooLong));
    // Names and values beyond 65535 bytes, where the limit lets them in.
    let wide = Limits { head_bytes: 1 << 20, ..limits };
    let bytes = with(&format!("{}: {}\r\nB: 2\r\n", "n".repeat(70_000), "v".repeat(70_000)));
    let mut head = RequestHead::default();
    head.buffer_mut().extend_from_slice(&bytes);
    assert!(weir_h1::parse_request(&mut head, &wide).is_ok());
    assert_eq!(
        head.headers.iter().map(|(n, v)| (n.len(), v.len())).collect::<Vec<_>>(),
        [(4, 1), (70_000, 70_000), (1, 1)]
    );
    assert_eq!(refusal(&bytes, &Limits { head_bytes: usize::MAX, ..limits }), None);
}

/// RFC 9110 §7.6.1 makes the work fields × nominations, so nominations have the limit of fields.
#[test]
fn nominations_are_bounded() {
    let limits = Limits::default();
    assert_eq!(refusal(&with(&format!("Connection: close{}\r\n", ",x".repeat(100))), &limits), None);
    let many = Some(Kind::TooManyFields);
    assert_eq!(refusal(&with(&format!("Connection: close{}\r\n", ",x".repeat(101))), &limits), many);
    let lines = format!("Connection: x{}\r\n", ",x".repeat(9)).repeat(11);
    assert_eq!(refusal(&with(&lines), &limits), many);
    // Empty members are none (RFC 9110 §5.6.1.2).
    assert_eq!(refusal(&with(&format!("Connection: {}\r\n", ",".repeat(9000))), &limits), None);
}

#[test]
fn pipelined_requests_are_read_one_after_another() {
    let wire = b"POST /1 HTTP/1.1\r\nHost: a\r\nX: 1\r\nContent-Length: 3\r\n\r\nabc\
        \r\nGET http://b HTTP/1.1\r\nHost: b\r\n\r\n\
        OPTIONS * HTTP/1.1\r\nHost: c\r\nConnection: close\r\n\r\n";
    for cut in 0..wire.len() {
        let mut head = RequestHead::default();
        let (mut seen, mut pieces) = (Vec::new(), [&wire[..cut], &wire[cut..]].into_iter());
        loop {
            match weir_h1::parse_request(&mut head, &Limits::default()) {
                Ok(weir_h1::Progress::Complete) => {
                    let body = usize::from(head.method() == weir_h1::Method::Post) * 3;
                    if head.rest().len() >= body {
                        head.set_path(b"/rewritten").unwrap();
                        head.mark_routed();
                        assert_eq!(head.routed_path(), b"/rewritten");
                        seen.push(format!(
                            "{} {} @{}",
                            common::text(head.method_name()),
                            common::text(head.received_target()),
                            common::text(head.authority())
                        ));
                        head.recycle(body);
                        assert_eq!(
                            (head.routed_path(), head.query(), head.headers.len()),
                            (&b""[..], None, 0)
                        );
                        continue;
                    }
                }
                Ok(weir_h1::Progress::Partial) => {}
                Err(e) => panic!("cut at {cut}: {e}"),
            }
            let Some(piece) = pieces.next() else { break };
            head.buffer_mut().extend_from_slice(piece);
        }
        assert_eq!(seen, ["POST /1 @a", "GET http://b @b", "OPTIONS * @c"], "cut at {cut}");
        assert!(head.rest().is_empty());
    }
}

#[test]
fn recycling_more_than_there_is_leaves_nothing() {
    let mut head = RequestHead::default();
    head.buffer_mut().extend_from_slice(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest");
    assert!(weir_h1::parse_request(&mut head, &Limits::default()).is_ok());
    head.recycle(usize::MAX);
    assert!(head.rest().is_empty() && head.buffer_mut().is_empty());
}

/// A peer that ends its head with bare LFs gets the error with that piece, not at the timeout.
#[test]
fn a_head_ended_by_bare_line_feeds_is_refused_at_once() {
    for wire in [
        &b"GET / HTTP/1.1\r\nHost: a\r\nX: 12345678\n\n"[..],
        b"GET / HTTP/1.1\nHost: a\nX: 12345678901234567890\n\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: 12345678901234567890\r\n\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: 12345678901234567890\n\r\n",
    ] {
        for cut in 0..wire.len() {
            let (got, _) = common::read::<RequestHead>(wire, &[cut], &Limits::default());
            assert!(matches!(got, common::Read::Refused(_)), "{} cut at {cut}", wire.escape_ascii());
        }
    }
}

/// RFC 1035 §2.3.4: no longer name has an address.
#[test]
fn host_names_are_as_long_as_the_dns_allows() {
    for (n, want) in [(254, None), (255, Some(Kind::Host)), (4096, Some(Kind::Host))] {
        let bytes = format!("GET / HTTP/1.1\r\nHost: {}:80\r\n\r\n", "a".repeat(n));
        assert_eq!(refusal(bytes.as_bytes(), &Limits::default()), want, "{n}");
    }
}

/// However many pieces a head comes in, the work stays in proportion to its bytes.
#[test]
fn byte_by_byte_is_not_quadratic() {
    let wire = with(&format!("A: {}\r\n", "x".repeat(30_000)));
    let mut head = RequestHead::default();
    let start = std::time::Instant::now();
    for byte in &wire {
        head.buffer_mut().push(*byte);
        let _ = weir_h1::parse_request(&mut head, &Limits::default());
    }
    assert_eq!(head.wire_len(), wire.len());
    // Some 15 ms in a debug build; 30 000 full passes would take more than 30 s there.
    assert!(start.elapsed().as_secs() < 5);
}

#[test]
fn set_authority_keeps_the_place_of_host() {
    let mut head = RequestHead::default();
    head.buffer_mut().extend_from_slice(b"GET / HTTP/1.1\r\nA: 1\r\nHost: a\r\nB: 2\r\n\r\n");
    assert!(weir_h1::parse_request(&mut head, &Limits::default()).is_ok());
    let written = |head: &RequestHead| {
        let mut out = Vec::new();
        head.headers.write_to(&mut out);
        String::from_utf8(out).unwrap()
    };
    for bad in [&b""[..], b"a b", b"a\r\nX: 1", b"u@a", b"a:70000", &[b'a'; 70_000]] {
        assert!(head.set_authority(bad).is_err());
        assert_eq!(written(&head), "A: 1\r\nHost: a\r\nB: 2\r\n");
    }
    head.set_authority(b"b:81").unwrap();
    head.set_authority(b"b:82").unwrap();
    assert_eq!(written(&head), "A: 1\r\nHost: b:82\r\nB: 2\r\n");
    assert_eq!(head.authority(), b"b:82");
    // Without one it comes first (RFC 9110 §7.2).
    head.headers.remove_known(weir_h1::Known::Host);
    head.set_authority(b"c").unwrap();
    assert_eq!(written(&head), "Host: c\r\nA: 1\r\nB: 2\r\n");
}

#[test]
fn paths_and_queries_that_would_split_a_request_line_are_refused() {
    let mut head = RequestHead::default();
    head.buffer_mut().extend_from_slice(b"GET /a?b HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(weir_h1::parse_request(&mut head, &Limits::default()).is_ok());
    for bad in [&b""[..], b"x", b"/ HTTP/1.1", b"/\r\n", b"/?", b"/#", b"/\0", b"/\xff", &[b'/'; 70_000]] {
        assert!(head.set_path(bad).is_err(), "{}", bad.escape_ascii());
    }
    for bad in [&b" "[..], b"a b", b"\r", b"#", b"\xff", &[b'/'; 70_000]] {
        assert!(head.set_query(Some(bad)).is_err(), "{}", bad.escape_ascii());
    }
    assert_eq!((head.path(), head.query()), (&b"/a"[..], Some(&b"b"[..])));
    head.set_path(b"/c").unwrap();
    head.set_query(Some(b"d?e")).unwrap();
    assert_eq!((head.path(), head.query()), (&b"/c"[..], Some(&b"d?e"[..])));
    head.set_query(None).unwrap();
    assert_eq!(head.query(), None);
}
