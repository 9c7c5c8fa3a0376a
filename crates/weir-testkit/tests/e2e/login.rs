//! Logins of a browser through a provider that answers over sockets. What is refused is tested in the filter's own file.

use weir_testkit::{Client, Response, Upstream, Weir};

use crate::cause::LOGIN_NEEDED;
use crate::jwt::{Signer, in_an_hour};
use crate::support::{OK, WEB};

/// A provider. The code that it expects is the nonce that the ID token gets.
pub(crate) fn provider() -> Upstream {
    let signer = Signer::new("a");
    Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            let issuer = format!("http://{}", request.head.header("host").unwrap_or_default());
            let target = request.head.line.split(' ').nth(1).unwrap_or_default().to_owned();
            let form = String::from_utf8_lossy(&request.body.bytes).into_owned();
            let body = match &*target {
                "/.well-known/openid-configuration" => format!(
                    r#"{{"issuer":"{issuer}","authorization_endpoint":"{issuer}/auth","token_endpoint":"{issuer}/token","jwks_uri":"{issuer}/keys"}}"#
                ),
                "/keys" => signer.jwks(),
                _ => {
                    let code =
                        form.split('&').find_map(|pair| pair.strip_prefix("code=")).unwrap_or_default();
                    let times = format!(r#""exp":{},"iat":{}"#, in_an_hour(), in_an_hour() - 3600);
                    let claims = format!(
                        r#"{{"iss":"{issuer}","aud":"app","sub":"ann","email":"ann@a.example","nonce":"{code}",{times}}}"#
                    );
                    format!(r#"{{"id_token":"{}","expires_in":3600}}"#, signer.token(&claims))
                }
            };
            if conn
                .try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
                .is_err()
            {
                return;
            }
        }
    })
}

/// The cookies that an answer sets, as a request sends them.
fn cookies(answer: &Response) -> String {
    let pairs = answer.head.all("set-cookie").into_iter().filter(|cookie| !cookie.contains("Max-Age=0"));
    pairs.map(|cookie| cookie.split(';').next().unwrap_or_default().to_owned()).collect::<Vec<_>>().join("; ")
}

fn open(client: &mut Client, target: &str, cookies: &str) -> Response {
    client.ask(format!(
        "GET {target} HTTP/1.1\r\nHost: app.example.com\r\nAccept: text/html\r\nCookie: {cookies}\r\n\r\n"
    ))
}

/// Logs in, and gives the cookies of the session and where the browser is sent.
pub(crate) fn log_in(weir: &Weir, target: &str, callback: &str) -> (String, String) {
    let mut client = weir.client();
    let begun = open(&mut client, target, "");
    begun.expect_status(302);
    let to = begun.header("location").unwrap().to_owned();
    let parameter = |name: &str| {
        to.split(['?', '&'])
            .find_map(|pair| pair.strip_prefix(&format!("{name}=")))
            .unwrap_or_default()
            .to_owned()
    };
    let back = format!("{callback}?code={}&state={}", parameter("nonce"), parameter("state"));
    let done = open(&mut client, &back, &cookies(&begun));
    done.expect_status(302);
    (cookies(&done), done.header("location").unwrap().to_owned())
}

#[test]
fn a_browser_logs_in() {
    let (upstream, provider) = (Upstream::fixed(OK), provider());
    let oidc = |headers: &str| {
        format!(
            "{{ oidc: {{ issuer: \"http://{}\", client_id: app, client_secret: s, redirect: \"https://app.example.com/cb\", headers: {{ {headers} }} }} }}",
            provider.address()
        )
    };
    let weir = Weir::start(&format!(
        "{WEB}\nworkers: 2\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes:\n  a: {{ match: {{ path: \"/*\" }}, filters: [ {} ], upstream: up }}\n  \
         b: {{ match: {{ path: \"/b\" }}, filters: [ {} ], upstream: up }}\n",
        upstream.address(),
        oidc("x-user: sub"),
        oidc("x-email: email"),
    ));
    weir.client().get("/a").expect_cause(LOGIN_NEEDED);
    let (session, to) = log_in(&weir, "/a?b=c", "/cb");
    assert_eq!(to, "https://app.example.com/a?b=c");
    assert_eq!(upstream.connections(), 0);
    for (target, name, value) in [("/a", "x-user", "ann"), ("/b", "x-email", "ann@a.example")] {
        open(&mut weir.client(), target, &format!("{session}; theirs=1")).expect_status(200);
        let head = upstream.take_request().head;
        assert_eq!((head.all(name), head.header("cookie")), (vec![value], Some("theirs=1")));
    }
    // Another gateway with the same secret knows the session; one that was changed nobody does.
    let changed = session.replacen("-0=", "-0=A", 1);
    open(&mut weir.client(), "/a", &changed).expect_status(302);
}
